"""`trunkline trace`: where a record is, when it passed each step, and why it waits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import NO
from trunkline.cli.options import JsonOption

if TYPE_CHECKING:
    from trunkline.cli.tracefollow import Place, Trace

ConfigsOption = Annotated[
    list[Path],
    typer.Option("--config", help="YAML file of a process of a site; once for each site to look at.", dir_okay=False),
]


def trace(
    record: Annotated[
        str, typer.Argument(metavar="RECORD_ID", help="Of a message, of the event it was made of, or of a bundle.")
    ],
    config: ConfigsOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Where a record is: read, routed, waiting in an outbox, a dead letter, in a queue, on its way, received, taken in,
    applied. It looks into the databases of the sites, among the newest rows. It ends with 0 if it was found, else with 1.

    Example: [bold]trunkline trace orders@5d1c9a2e/0/4711 --config edge.yaml --config hub.yaml[/]
    """
    from trunkline.cli.tracefollow import follow
    from trunkline.core.errors import Invalid

    if not config:
        raise Invalid("trace", "it is not said which sites to look at", "give --config site.yaml, once for each site")
    found = follow([_place(one) for one in config], record)
    shown.print_json(_document(found)) if as_json else _print(found)
    raise typer.Exit(0 if found.steps else NO)


def _place(config: Path) -> Place:
    from trunkline.bridge.operating import types_of
    from trunkline.cli.queues.place import connected
    from trunkline.cli.tracefollow import Place
    from trunkline.core.config import load_config

    loaded = load_config(config)
    dsn = loaded.database.reveal()
    return Place(loaded.site, lambda: connected(dsn), types_of(loaded.bridge))


def _document(found: Trace) -> dict[str, Any]:
    steps = [one.shown() for one in found.steps]
    return {"record": found.record.text, "verdict": found.verdict(), "steps": steps, "notes": list(found.notes)}


def _print(found: Trace) -> None:
    rows = [
        (one.site, one.step.place, one.step.state, _time(one.step.at), shown.shortened(one.step.why, 300))
        for one in found.steps
    ]
    if rows:
        shown.print_table(("site", "place", "state", "at", "what"), rows)
    for note in found.notes:
        typer.echo(f"note: {shown.harmless(note)}")
    typer.echo(shown.harmless(found.verdict()))


def _time(seconds: float | None) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z" if seconds is not None else "–"
