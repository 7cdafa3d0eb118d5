"""`trunkline routes explain`: which routes take an event, and why the others do not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.kv import shown
from trunkline.cli.kv.options import NO, TokenOption, UrlOption
from trunkline.cli.options import JsonOption
from trunkline.cli.routes.options import AppOption, OrgOption
from trunkline.routes.keys import HOUSE

if TYPE_CHECKING:
    from trunkline.routes.event import Event

TAKEN = "taken"
SLOW = 75.0  # seconds: a script may take its time


def explain(
    event: Annotated[str, typer.Argument(metavar="EVENT", help="Its payload as JSON; @FILE, or - for standard input.")],
    routes: Annotated[
        list[Path], typer.Option("--routes", help="File or folder of routes, in place of a node; may be repeated.")
    ] = [],  # noqa: B006
    url: UrlOption = None, token: TokenOption = None, org: OrgOption = HOUSE.org, app: AppOption = HOUSE.app,
    metadata: Annotated[str, typer.Option(help="What stands beside the payload, a map as JSON.", metavar="JSON")] = "{}",
    route: Annotated[list[str], typer.Option("--route", help="Only the route with this id; may be repeated.")] = [],  # noqa: B006
    site: Annotated[str, typer.Option(help="What {site} gives; with --routes.")] = "site",
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Says of one event which routes take it and what they would send; of each other route the filter that dropped it, and
    why. Nothing is sent. It ends with 0 if a route takes it, else with 1.

    Example: [bold]trunkline routes explain '{"kind": "alarm", "level": 3}' --routes routes/[/]
    """
    body = {"payload": _json(_given(event), "event"), "metadata": _json(metadata, "metadata")}
    found = _by_files(routes, body, site) if routes else _by_node(url, token, {**body, "tenant": {"orgId": org, "appId": app}})
    found = [one for one in found if not route or one["id"] in route]
    if as_json:
        shown.print_json({"routes": found})
    else:
        _print(found)
    raise typer.Exit(0 if any(one["verdict"] == TAKEN for one in found) else NO)


def _given(event: str) -> bytes:
    from trunkline.core.errors import Invalid

    if event == "-":
        return sys.stdin.buffer.read()
    if not event.startswith("@"):
        return event.encode()
    try:
        return Path(event[1:]).read_bytes()
    except OSError as error:
        raise Invalid(f"event {event!r}", error.strerror or str(error), "name a file that holds one payload") from None


def _json(text: bytes | str, what: str) -> Any:
    from trunkline.core.errors import Invalid
    from trunkline.core.jsoncodec import loads

    found = loads(text, what)
    if what == "metadata" and not isinstance(found, dict):
        raise Invalid(what, "it is not a map", 'write it like {"path": "/alarms"}')
    return found


def _by_files(paths: list[Path], body: dict[str, Any], site: str) -> list[dict[str, Any]]:
    import time

    from trunkline.cli.routes.lint import print_mistakes
    from trunkline.core.mistakes import Mistakes
    from trunkline.routes.explain import explain
    from trunkline.routes.files import files_of, read_files
    from trunkline.routes.plugin import Around

    around = Around({"site": site}, now=time.time)
    files = read_files(files_of(paths), around)
    if files.mistakes:
        raise Mistakes("routes", files.mistakes, "mend them; `trunkline routes lint` says the same")
    print_mistakes([], [one for one in files.warnings if one.key.endswith("fragmentName")], err=True)
    found = [one.compiled for one in files.routes if one.compiled]
    return [one.as_json() for one in explain(_event(body, time.time()), found, around)]


def _event(body: dict[str, Any], now: float) -> Event:
    from trunkline.routes.event import Event, Source

    return Event(body["payload"], body["metadata"], Source(at=now))


def _by_node(url: str | None, token: str | None, body: dict[str, Any]) -> list[dict[str, Any]]:
    from trunkline.cli.routes.table import table_client

    found: list[dict[str, Any]] = []
    after: str | None = ""
    with table_client(url, token, SLOW) as client:
        while after is not None:
            page = client.ask("POST", "/v1/routes/explain", body, {"after": after})
            found, after = [*found, *page["routes"]], page["next"]
    return found


def _print(found: list[dict[str, Any]]) -> None:
    if not found:
        typer.echo("there are no routes")
        return
    taken = [one for one in found if one["verdict"] == TAKEN]
    others = [one for one in found if one["verdict"] != TAKEN]
    for one in taken:
        typer.secho(f"{shown.harmless(one['id'])}: taken, from {one['receiver']}", fg="green")
        for message in one["messages"]:
            typer.echo(f"  sends {_compact(message)}")
        for fault in one["faults"]:
            typer.echo(f"  but {shown.harmless(fault)}")
    for one in others:
        step = f" by {one['step']}" if one["step"] else ""
        typer.echo(f"{shown.harmless(one['id'])}: {one['verdict'].replace('_', ' ')}{step}: {shown.harmless(one['reason'])}")


def _compact(message: dict[str, Any]) -> str:
    from trunkline.core.jsoncodec import dumps

    return shown.shortened(dumps({key: value for key, value in message.items() if value != {}}).decode(), 200)
