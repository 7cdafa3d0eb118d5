"""What the API answers about paths and about what was carried over them, as its description shows it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class _Shown(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class NeighbourShown(_Shown):
    site: str
    since_seconds: float = Field(description="how long the link is up")
    hears: bool = Field(description="whether this site takes records from it; otherwise it only gives")
    capable: bool = Field(description="whether it sends only what is asked for; otherwise everything comes")
    cost: int = Field(description="of the link, in hops")
    damped_seconds: float = Field(description="how long it must stay up before it counts; 0: it counts")


class RowShown(_Shown):
    subscriber: str
    source: str = Field(description="whose records")
    via: str = Field(description="the neighbour they are taken from")
    depth: int = Field(description="links on the path")
    cost: int = Field(description="of the path, in hops")
    path: list[str] = Field(description="from the neighbour to the source, both included")
    flags: list[str] = Field(description="all: everything comes; stale: its links are no longer in the store, and it works")
    since_seconds: float | None = Field(description="how long it is so; null: the row came through the store")


class MovesShown(_Shown):
    first: int = Field(description="sources that had no path before")
    forced: int = Field(description="paths that were lost")
    voluntary: int = Field(description="shorter paths that came up")
    watchdog: int = Field(description="neighbours that stood still while another went on")


class TopologyShown(_Shown):
    site: str
    leads: bool = Field(description="whether this node speaks for its site; otherwise it has no neighbours and no rows")
    incarnation: int
    neighbours: list[NeighbourShown]
    rows: list[RowShown]
    moves: MovesShown


class TableShown(_Shown):
    rows: list[RowShown]
    sites: list[str] = Field(description="those whose rows these are")
    missing: list[str] = Field(description="known sites that published no rows: ask their nodes")


class CandidateShown(_Shown):
    via: str
    connected: bool
    depth: int | None = Field(description="null: no path through it is known")
    cost: int | None
    path: list[str] = Field(description="as the links in the store give it")
    chain: bool = Field(description="whether the path it told itself reaches the source without this site")
    cursor: int | None = Field(description="the last entry of the source that it has; null: it did not say")
    chosen: bool
    note: str = Field(description="what speaks against it, if anything does")


class WhyShown(_Shown):
    source: str
    row: RowShown | None = Field(description="null: its records are taken from nobody")
    since_seconds: float | None
    manner: str | None = Field(description="how it came to this neighbour: first, forced, gentle or watchdog")
    reason: str
    candidates: list[CandidateShown]


class StreamShown(_Shown):
    origin: str
    from_: str = Field(alias="from", description="the neighbour it comes from")
    id: int = Field(description="of the subscription")
    cursor: int | None = Field(description="the last entry that came; null: the neighbour has not accepted yet")
    head: int | None = Field(description="the last entry of the origin's log, as far as it is known here")
    lag: int | None = Field(description="entries between the two")
    lane: str = Field(description="live or catch_up")
    received: int
    duplicate: int
    stray: int
    catch_up: int
    bytes: int


class ChildShown(_Shown):
    origin: str
    site: str = Field(description="the neighbour that takes it here")
    sent: int | None = Field(description="the last entry that it was sent; null: none yet")
    queued: int = Field(description="bytes that wait for it")
    lagging: bool = Field(description="whether it was too slow and left the stream for a while")
    lane: str


class TrunkShown(_Shown):
    site: str
    leads: bool
    head: int = Field(description="the last entry of this site's log")
    links: dict[str, dict[str, int]] = Field(description="site → what was counted on the link with it, also while that is down")
    streams: list[StreamShown] = Field(description="what this site takes")
    children: list[ChildShown] = Field(description="what others take here")


# -- one fleet for all examples: paris takes hub's and lyon's records from hub, and rome has not published its rows

ROW = {
    "subscriber": "paris", "source": "lyon", "via": "hub", "depth": 2, "cost": 2, "path": ["hub", "lyon"], "flags": [],
    "since_seconds": 192.4,
}  # fmt: skip
TOPOLOGY = {
    "site": "paris", "leads": True, "incarnation": 1790000000,
    "neighbours": [
        {"site": "hub", "since_seconds": 192.5, "hears": True, "capable": True, "cost": 1, "damped_seconds": 0.0}
    ],
    "rows": [ROW],
    "moves": {"first": 2, "forced": 0, "voluntary": 0, "watchdog": 0},
}  # fmt: skip
TABLE = {"rows": [ROW], "sites": ["hub", "lyon", "paris"], "missing": ["rome"]}
WHY = {
    "source": "lyon", "row": ROW, "since_seconds": 192.4, "manner": "first", "reason": "cost 2 is the least",
    "candidates": [
        {"via": "hub", "connected": True, "depth": 2, "cost": 2, "path": ["hub", "lyon"], "chain": True, "cursor": 4711,
         "chosen": True, "note": ""}
    ],
}  # fmt: skip
TRUNK = {
    "site": "paris", "leads": True, "head": 42,
    "links": {
        "hub": {"received": 4711, "duplicate": 0, "stray": 0, "catch_up": 0, "bytes": 932778, "sent": 42, "relayed": 0,
                "sent_bytes": 8316, "received_bytes": 941003}
    },
    "streams": [
        {"origin": "lyon", "from": "hub", "id": 3, "cursor": 4711, "head": 4711, "lag": 0, "lane": "live", "received": 4711,
         "duplicate": 0, "stray": 0, "catch_up": 0, "bytes": 932778}
    ],
    "children": [{"origin": "paris", "site": "hub", "sent": 42, "queued": 0, "lagging": False, "lane": "live"}],
}  # fmt: skip
