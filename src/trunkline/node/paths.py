"""What a node shows of its topology and trunk. Times are said as ages, for a clock means nothing to another machine."""

from __future__ import annotations

from typing import Any

from trunkline.node.peers import Peers
from trunkline.node.sitecore import SiteCore
from trunkline.topology.rows import Row

MOVES = ("first", "forced", "voluntary", "watchdog")


def topology(core: SiteCore, now: float) -> dict[str, Any]:
    topology = core.topology
    return {
        "site": core.identity.site,
        "leads": core.carrying is not None,
        "incarnation": core.incarnation,
        "neighbours": [
            {
                "site": n.site, "since_seconds": _age(n.since, now), "hears": n.hears, "capable": n.capable, "cost": n.cost,
                "damped_seconds": round(max(0.0, (n.damped_until or now) - now), 3),
            }
            for n in topology.neighbours()
        ],
        "rows": [_row(core.identity.site, row, _since(core, row, now)) for _, row in sorted(topology.rows.items())],
        "moves": {manner: topology.counts[manner] for manner in MOVES},
    }  # fmt: skip


def table(core: SiteCore, now: float) -> dict[str, Any]:
    """Its own rows as they are, the others' as they published them."""
    here = core.identity.site
    published = {site: [_row(site, row) for row in rows] for site, rows in core.published_rows().items()}
    if core.carrying is not None:
        published[here] = topology(core, now)["rows"]
    known = {node.site for node in core.nodes()} | set(core.links())
    return {
        "rows": [row for site in sorted(published) for row in published[site]],
        "sites": sorted(published),
        "missing": sorted(known - published.keys()),
    }


def why(core: SiteCore, site: str, now: float) -> dict[str, Any] | None:
    known = {node.site for node in core.nodes()} | set(core.links()) | set(core.topology.rows)
    if site == core.identity.site or site not in known:
        return None
    found = core.topology.why(site)
    return {
        "source": site,
        "row": _row(core.identity.site, found.row, _age(found.since, now)) if found.row is not None else None,
        "since_seconds": _age(found.since, now),
        "manner": found.manner.value if found.manner is not None else None,
        "reason": found.reason if core.carrying is not None else "this node does not lead its site: ask the one that does",
        "candidates": [
            {
                "via": c.via, "connected": c.connected, "depth": c.depth, "cost": c.cost, "path": list(c.path),
                "chain": c.chain_valid, "cursor": c.cursor, "chosen": c.chosen, "note": c.note,
            }
            for c in found.candidates
        ],
    }  # fmt: skip


def trunk(core: SiteCore, peers: Peers) -> dict[str, Any]:
    carrier = core.carrier
    if carrier is None:
        nothing: dict[str, Any] = {"links": {}, "streams": [], "children": []}
        return {"site": core.identity.site, "leads": False, "head": 0, **nothing}
    shown = carrier.view()
    heads = core.topology.table.heads()
    for stream in shown["streams"]:
        head, cursor = heads.get(stream["origin"]), stream["cursor"]
        stream |= {"head": head, "lag": max(0, head - cursor) if head is not None and cursor is not None else None}
    for peer, link in peers.endpoint.links().items():
        if core.carries_with(peer):
            sizes = {"sent_bytes": link.sent_bytes, "received_bytes": link.received_bytes}
            shown["links"].setdefault(peer.site, {}).update(sizes)
    return {"site": core.identity.site, "leads": True, "head": carrier.head.seq, **shown}


def _row(subscriber: str, row: Row, since_seconds: float | None = None) -> dict[str, Any]:
    return {
        "subscriber": subscriber, "source": row.source, "via": row.via, "depth": row.depth, "cost": row.cost,
        "path": list(row.path), "flags": [flag.value for flag in row.flags], "since_seconds": since_seconds,
    }  # fmt: skip


def _since(core: SiteCore, row: Row, now: float) -> float | None:
    taking = core.topology.table.takings.get(row.source)
    return _age(taking.since, now) if taking is not None else None


def _age(since: float | None, now: float) -> float | None:
    return round(now - since, 3) if since is not None else None
