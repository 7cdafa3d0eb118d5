"""The paths of a small fleet, as its nodes show them: lyon — hub — paris — rome, where the link of lyon costs two hops.

All but rome have published their rows; a path of lyon runs over links that are no longer in the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

PATHS = {
    "hub": (("lyon",), ("paris",), ("paris", "rome")),
    "lyon": (("hub",), ("hub", "paris"), ("hub", "paris", "rome")),
    "paris": (("hub",), ("hub", "lyon"), ("rome",)),
    "rome": (("paris",), ("paris", "hub"), ("paris", "hub", "lyon")),
}
HEADS = {"hub": 40, "lyon": 4711, "paris": 42, "rome": 7}
AGE = 192.4


def rows(site: str, aged: bool) -> list[dict[str, Any]]:
    return [_row(site, path, aged) for path in PATHS[site]]


def _row(site: str, path: tuple[str, ...], aged: bool) -> dict[str, Any]:
    flags = ["stale"] if (site, path[-1]) == ("lyon", "rome") else []
    return {
        "subscriber": site, "source": path[-1], "via": path[0], "depth": len(path), "path": list(path), "flags": flags,
        "cost": len(path) + ("lyon" in (site, path[-1])), "since_seconds": AGE if aged else None,
    }  # fmt: skip


class MemoryPaths:
    """What a node of that site says; one that does not lead knows only what was published."""

    def __init__(self, site: str = "paris", leads: bool = True, missing: tuple[str, ...] = ("rome",)) -> None:
        self.site, self.leads, self.missing = site, leads, missing
        self.links: dict[str, dict[str, int]] = {v: _link(n) for n, v in enumerate(self._neighbours())}
        self.lag = 0

    def views(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in ("topology", "topology_table", "topology_why", "trunk")}

    def _neighbours(self) -> list[str]:
        return [path[0] for path in PATHS[self.site] if len(path) == 1] if self.leads else []

    def topology(self) -> dict[str, Any]:
        neighbours = [
            {"site": v, "since_seconds": AGE, "hears": True, "capable": True, "cost": 1, "damped_seconds": 0.0}
            for v in self._neighbours()
        ]
        moves = {"first": 3, "forced": 2, "voluntary": 1, "watchdog": 0}
        own = rows(self.site, aged=True) if self.leads else []
        return {
            "site": self.site,
            "leads": self.leads,
            "incarnation": 17,
            "neighbours": neighbours,
            "rows": own,
            "moves": moves,
        }

    def topology_table(self) -> dict[str, Any]:
        sites = [site for site in PATHS if site not in self.missing]
        return {"rows": [row for site in sites for row in rows(site, False)], "sites": sites, "missing": list(self.missing)}

    def topology_why(self, site: str) -> dict[str, Any] | None:
        if site == self.site or site not in PATHS:
            return None
        row = next((row for row in rows(self.site, True) if row["source"] == site), None) if self.leads else None
        if row is None:
            return {
                "source": site,
                "row": None,
                "since_seconds": None,
                "manner": None,
                "reason": "no link is up",
                "candidates": [],
            }
        return {
            "source": site, "row": row, "since_seconds": AGE, "manner": "forced", "reason": f"{row['via']} is the nearest way",
            "candidates": [_candidate(v, row) for v in self._neighbours()],
        }  # fmt: skip

    def trunk(self) -> dict[str, Any]:
        own = rows(self.site, True) if self.leads else []
        streams = [
            {"origin": row["source"], "from": row["via"], "id": n, "cursor": HEADS[row["source"]] - self.lag,
             "head": HEADS[row["source"]], "lag": self.lag, "lane": "live", "received": HEADS[row["source"]], "duplicate": 0,
             "stray": 0, "catch_up": 0, "bytes": 4096}
            for n, row in enumerate(own)
        ]  # fmt: skip
        children = [
            {"origin": self.site, "site": v, "sent": HEADS[self.site], "queued": 2048 * n, "lagging": n > 0, "lane": "live"}
            for n, v in enumerate(self._neighbours())
        ]
        return deepcopy({"site": self.site, "leads": self.leads, "head": HEADS[self.site], "links": self.links,
                         "streams": streams, "children": children})  # fmt: skip


def _link(n: int) -> dict[str, int]:
    return {
        "received": 4711 - n, "duplicate": 0, "stray": n, "catch_up": 12 * n, "bytes": 932778, "sent": 42, "relayed": 3,
        "hole": 1, "sent_bytes": 8316, "received_bytes": 3 << 20,
    }  # fmt: skip


def _candidate(via: str, row: Mapping[str, Any]) -> dict[str, Any]:
    chosen = via == row["via"]
    return {
        "via": via, "connected": True, "depth": row["depth"] if chosen else None, "cost": row["cost"] if chosen else None,
        "path": row["path"] if chosen else [], "chain": chosen, "cursor": 4711 if chosen else None, "chosen": chosen,
        "note": "the nearest" if chosen else "no way that does not pass here",
    }  # fmt: skip
