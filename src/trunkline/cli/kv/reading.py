"""`trunkline kv get`, `keys`, `dump`, `own`, `summary`, `signature` and `peers`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import (
    NO,
    AreaOption,
    AreasOption,
    BothOption,
    KeyArgument,
    OriginatorOption,
    PatternOption,
    PrefixOption,
    TokenOption,
    UrlOption,
    filters,
)
from trunkline.cli.options import JsonOption

if TYPE_CHECKING:
    from trunkline.cli.kv.client import Client


def get(
    key: KeyArgument, url: UrlOption = None, token: TokenOption = None, area: AreaOption = "fleet", as_json: JsonOption = False
) -> None:
    """Prints a key's value, as it is: 0 when it is there, else 1.

    Example: [bold]trunkline kv get app/lamp[/]
    """
    from trunkline.cli.kv.client import Client, Refusal, at

    try:
        with Client(url, token) as client:
            found = client.ask("GET", at(area, "keys", key))
    except Refusal as refusal:
        if refusal.slug != "no-such-key":
            raise
        shown.print_refusal(refusal.what, refusal.why, f"see `trunkline kv keys --area {area}`")
        raise typer.Exit(NO) from None
    if as_json:
        shown.print_json(found)
    else:
        _print_value(found)


def _print_value(found: dict[str, Any]) -> None:
    data = shown.data_of(found)
    if sys.stdout.isatty():
        typer.echo(shown.harmless(found["text"]) if "text" in found else f"(base64) {found['base64']}")
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def keys(
    url: UrlOption = None, token: TokenOption = None, area: AreasOption = ["fleet"],  # noqa: B006
    prefix: PrefixOption = [], key: PatternOption = [], originator: OriginatorOption = [], both: BothOption = False,  # noqa: B006
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """The names of the keys, one per line.

    Example: [bold]trunkline kv keys --prefix app/[/]
    """
    found = _found(url, token, area, filters(prefix, key, originator, both), values=False)
    if as_json:
        shown.print_json({name: list(values) for name, values in found.items()})
        return
    for name, values in found.items():
        for one in values:
            typer.echo(shown.harmless(one) if len(found) == 1 else f"{name}  {shown.harmless(one)}")


def dump(
    url: UrlOption = None, token: TokenOption = None, area: AreasOption = ["fleet"],  # noqa: B006
    prefix: PrefixOption = [], key: PatternOption = [], originator: OriginatorOption = [], both: BothOption = False,  # noqa: B006
    values: Annotated[bool, typer.Option(help="The values, too.")] = True,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """The keys with their versions, originators, times to live and values.

    Example: [bold]trunkline kv dump --area '*' --originator paris/node-1[/]
    """
    found = _found(url, token, area, filters(prefix, key, originator, both), values)
    if as_json:
        shown.print_json(found)
        return
    rows = [_row(name, key, value, values) for name, some in found.items() for key, value in some.items()]
    several = len(found) > 1
    columns = ("area", "key", "version", "originator", "ttl", "bytes", *(("value",) if values else ()))
    shown.print_table(columns[not several :], [row[not several :] for row in rows])


def _row(area: str, key: str, value: dict[str, Any], values: bool) -> tuple[str, ...]:
    cells = (area, shown.harmless(key), str(value["version"]), value["originator"], shown.ttl(value["ttl_ms"]))
    return (*cells, str(value["bytes"]), *((shown.preview(key, value),) if values else ()))


def _found(
    url: str | None, token: str | None, areas: list[str], wanted: dict[str, Any], values: bool
) -> dict[str, dict[str, dict[str, Any]]]:
    from trunkline.cli.kv.client import Client, at

    with Client(url, token) as client:
        names = _areas(client) if "*" in areas else list(dict.fromkeys(areas))
        return {name: dict(client.pages(at(name), "values", {**wanted, "values": values})) for name in names}


def _areas(client: Client) -> list[str]:
    return sorted(client.ask("GET", "/v1/store")["areas"])


def own(url: UrlOption = None, token: TokenOption = None, area: AreaOption = "fleet", as_json: JsonOption = False) -> None:
    """The keys that this very node keeps alive.

    Example: [bold]trunkline kv own[/]
    """
    from trunkline.cli.kv.client import Client, at

    with Client(url, token) as client:
        found = client.ask("GET", at(area, "own"))["keys"]
    if as_json:
        shown.print_json(found)
        return
    rows = [
        (shown.harmless(k), o["keep"], str(o["version"]), shown.ttl(o["ttl_ms"]), str(o["bytes"])) for k, o in found.items()
    ]
    shown.print_table(("key", "keep", "version", "ttl", "bytes"), sorted(rows))


def summary(
    url: UrlOption = None, token: TokenOption = None,
    counters: Annotated[bool, typer.Option("--counters", help="The counters, too.")] = False,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """The areas of the node: how large each is, with how many peers, and whether it is in step.

    Example: [bold]trunkline kv summary --counters[/]
    """
    from trunkline.cli.kv.client import Client

    with Client(url, token) as client:
        found = client.ask("GET", "/v1/store")["areas"]
    if as_json:
        shown.print_json(found)
        return
    columns = ("keys", "bytes", "own", "peers", "initialized", "synced", "watches")
    rows = [(name, *(_word(area.get(column)) for column in columns)) for name, area in sorted(found.items())]
    shown.print_table(("area", *columns), rows)
    if counters:
        typer.echo("")
        numbers = [(n, c, str(count)) for n, area in sorted(found.items()) for c, count in sorted(area["counters"].items())]
        shown.print_table(("area", "counter", "count"), numbers)


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def signature(
    url: UrlOption = None, token: TokenOption = None, area: AreaOption = "fleet",
    prefix: PrefixOption = [], key: PatternOption = [], originator: OriginatorOption = [], both: BothOption = False,  # noqa: B006
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """One number over the keys and values of an area: the same at every node that has the same.

    Example: [bold]trunkline kv signature --prefix app/[/]
    """
    from trunkline.cli.kv.client import Client, at

    with Client(url, token) as client:
        found = client.ask("GET", at(area, "signature"), params=filters(prefix, key, originator, both))
    if as_json:
        shown.print_json(found)
    else:
        typer.echo(found["signature"])


def peers(url: UrlOption = None, token: TokenOption = None, area: AreaOption = "fleet", as_json: JsonOption = False) -> None:
    """The nodes with which this one keeps an area in step: 0 when all are, else 1.

    Example: [bold]trunkline kv peers[/]
    """
    from trunkline.cli.kv.client import Client, at

    with Client(url, token) as client:
        found = client.ask("GET", at(area, "peers"))["peers"]
    if as_json:
        shown.print_json(found)
    else:
        columns = ("peer", "state", "since", "flaps", "failures", "pending", "addresses", "reason")
        shown.print_table(columns, [_peer_row(name, peer) for name, peer in sorted(found.items())])
    raise typer.Exit(0 if all(peer["state"] == "initialized" for peer in found.values()) else NO)


def _peer_row(name: str, peer: dict[str, Any]) -> tuple[str, ...]:
    state = peer["state"] if peer["linked"] else f"{peer['state']}, no link"
    numbers = (f"{peer['seconds']:.0f}s", str(peer["flaps"]), str(peer["failures"]), str(peer["pending"]))
    return (name, state, *numbers, ",".join(peer["addresses"]) or "-", shown.harmless(peer["reason"]) or "-")
