"""Options of the commands that ask a node's store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trunkline.cli.duration import seconds

_FILTERS = "Which keys"
NO = 1

UrlOption = Annotated[
    str | None, typer.Option("--url", envvar="TRUNKLINE_API_URL", help="API of the node to ask.", metavar="URL")
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="TRUNKLINE_API_TOKEN",
        show_envvar=True,
        metavar="@FILE",
        help="Token of the API: @ and a file that holds it. Others can read arguments, so do not write the token itself.",
    ),
]
AreaOption = Annotated[str, typer.Option("--area", help="Area of the store.")]
AreasOption = Annotated[list[str], typer.Option("--area", help="Area of the store; may be repeated. '*': all.")]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY")]
KeysArgument = Annotated[list[str], typer.Argument(metavar="KEY...")]
PrefixOption = Annotated[
    list[str], typer.Option("--prefix", help="Beginning of a key; may be repeated.", rich_help_panel=_FILTERS)
]
PatternOption = Annotated[
    list[str],
    typer.Option("--key", help="Pattern that fits a key from its beginning; may be repeated.", rich_help_panel=_FILTERS),
]
OriginatorOption = Annotated[
    list[str],
    typer.Option("--originator", help="Node that wrote it, as <site>/<node>; may be repeated.", rich_help_panel=_FILTERS),
]
BothOption = Annotated[
    bool, typer.Option("--both", help="Both key and originator must fit; else either.", rich_help_panel=_FILTERS)
]


def filters(prefix: list[str], key: list[str], originator: list[str], both: bool) -> dict[str, Any]:
    return {"prefix": prefix, "key": key, "originator": originator, "match": "all" if both else "any"}


def ttl_ms(text: str | None) -> int | None:
    """Milliseconds; none for `never`, or when nothing is said."""
    return None if text is None or text == "never" else max(1, round(seconds(text) * 1000))
