"""`trunkline kv snoop`: keys as they change, for people at a terminal, as lines, or as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trunkline.cli.duration import seconds
from trunkline.cli.kv import shown
from trunkline.cli.kv.options import (
    AreaOption,
    BothOption,
    OriginatorOption,
    PatternOption,
    PrefixOption,
    TokenOption,
    UrlOption,
    filters,
)

if TYPE_CHECKING:
    from trunkline.cli.kv.liveview import LiveView

SILENCE = 20.0  # a stream that lives says something every five seconds
Event = dict[str, Any]
_QUIET = frozenset({"alive"})
_SIGNALS = {
    "snapshot_done": "-- that is what there is; changes follow",
    "peer_synced": "-- in step with {peer}",
    "synced": "-- in step with all peers",
    "missed": "-- {changes} changes were missed; what there is follows anew",
}


def snoop(
    url: UrlOption = None, token: TokenOption = None, area: AreaOption = "fleet",
    prefix: PrefixOption = [], key: PatternOption = [], originator: OriginatorOption = [], both: BothOption = False,  # noqa: B006
    ttl: Annotated[bool, typer.Option("--ttl", help="Also when a value only lives longer.")] = False,
    snapshot: Annotated[bool, typer.Option(help="First what there is.")] = True,
    duration: Annotated[str | None, typer.Option(help="Stop after this long (30s, 5m).", show_default="Ctrl-C")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document per line on standard output.")] = False,
) -> None:  # fmt: skip
    """Shows keys as they change, until Ctrl-C: a table at a terminal, otherwise a line for each event.

    Example: [bold]trunkline kv snoop --prefix app/ --duration 60s[/]
    """
    wanted = filters(prefix, key, originator, both) | {"ttl": ttl, "snapshot": snapshot}
    limit = seconds(duration) if duration else None
    view = None if as_json or not sys.stdout.isatty() else _live(area)
    tell: Callable[[Event], None] = _tell_json if as_json else _tell_line if view is None else view.take
    screen: AbstractContextManager[object] = nullcontext() if view is None else view
    try:
        with screen:
            asyncio.run(_follow(url, token, area, wanted, limit, tell))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _live(area: str) -> LiveView:
    from trunkline.cli.kv.liveview import LiveView

    return LiveView(area)


async def _follow(
    url: str | None, token: str | None, area: str, wanted: dict[str, Any], limit: float | None, tell: Callable[[Event], None]
) -> None:
    """`limit` counts from the first event: how long a node takes to answer is not the watcher's time."""
    try:
        async with asyncio.timeout(None) as until:
            async for event in _events(url, token, area, wanted):
                if limit is not None and until.when() is None:
                    until.reschedule(asyncio.get_running_loop().time() + limit)
                tell(event)
    except TimeoutError:
        if not until.expired():
            raise


async def _events(url: str | None, token: str | None, area: str, wanted: dict[str, Any]) -> AsyncIterator[Event]:
    import httpx

    from trunkline.cli.kv.client import at, authorization, base_url, document, unreachable
    from trunkline.core.errors import Retryable

    base = base_url(url)
    timeout = httpx.Timeout(SILENCE, connect=5.0)
    try:
        async with (
            httpx.AsyncClient(base_url=base, headers=authorization(token), timeout=timeout, trust_env=False) as client,
            client.stream("GET", at(area, "watch"), params=wanted) as answer,
        ):
            if not answer.is_success:
                await answer.aread()
                document(answer, base)
            async for line in answer.aiter_lines():
                event = json.loads(line)
                if event["event"] == "ended":
                    raise Retryable(
                        f"API at {base}", f"it ended the watch: {event['reason']}", "start it again, or ask another node"
                    )
                yield event
    except httpx.HTTPError as error:
        raise unreachable(base, error) from None
    raise Retryable(f"API at {base}", "it closed the watch", "start it again")


def _tell_json(event: Event) -> None:
    if event["event"] not in _QUIET:
        typer.echo(json.dumps(event, ensure_ascii=False))


def _tell_line(event: Event) -> None:
    if event["event"] not in _QUIET:
        typer.echo(line_of(event))
        sys.stdout.flush()


def line_of(event: Event) -> str:
    kind = event["event"]
    if kind in _SIGNALS:
        return _SIGNALS[kind].format(peer=event.get("peer", ""), changes=event.get("changes", 0))
    skipped = f"  (+{event['skipped']} changes)" if event.get("skipped") else ""
    if "version" not in event:
        return f"{kind:8} {shown.harmless(event['key'])}{skipped}"
    where = f"v{event['version']} {event['originator']} {shown.ttl(event['ttl_ms'])}"
    value = f"  {shown.preview(event['key'], event)}" if kind == "value" else ""
    return f"{kind:8} {shown.harmless(event['key'])}  {where}{value}{skipped}"
