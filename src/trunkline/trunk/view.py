"""The trunk as people look at it: plain data, made from what the carrier has."""

from __future__ import annotations

from collections import Counter
from typing import Any

from trunkline.trunk.children import Children
from trunkline.trunk.desk import Desk
from trunkline.trunk.streams import Stream
from trunkline.trunk.taker import Taker
from trunkline.trunk.upstream import Upstream

COUNTED = ("received", "duplicate", "stray", "catch_up", "bytes", "sent", "relayed")
_OF_STREAM = ("received", "duplicate", "stray", "catch_up", "bytes")


def view_of(desk: Desk, children: Children, upstream: Upstream) -> dict[str, Any]:
    return {
        "links": {site: _link(desk.counters, site) for site in sorted({*desk.links, *_counted(desk.counters)})},
        "streams": [_stream(desk, stream) for _, stream in sorted(upstream.streams.items())],
        "children": [_child(origin, taker) for origin, taker in children.all()],
    }


def _counted(counters: Counter[tuple[str, str]]) -> set[str]:
    """Also those whose link is down: what was counted does not vanish with it."""
    return {site for site, what in counters if what in COUNTED}


def _link(counters: Counter[tuple[str, str]], site: str) -> dict[str, int]:
    further = {what: number for (neighbour, what), number in counters.items() if neighbour == site}
    return {**dict.fromkeys(COUNTED, 0), **further}


def _stream(desk: Desk, stream: Stream) -> dict[str, Any]:
    tally = desk.tallies[stream.parent, stream.origin]
    cursor = stream.cursor.seq if stream.cursor is not None else None
    return {
        "origin": stream.origin,
        "from": stream.parent,
        "id": stream.id,
        "lane": stream.lane.name.lower(),
        "cursor": cursor,
        **{what: tally[what] for what in _OF_STREAM},
    }


def _child(origin: str, taker: Taker) -> dict[str, Any]:
    return {
        "origin": origin,
        "site": taker.site,
        "lane": taker.lane.name.lower(),
        "sent": taker.sent.seq if taker.sent is not None else None,
        "queued": taker.queued,
        "lagging": taker.lagging,
    }
