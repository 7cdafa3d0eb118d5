"""One real `trunkline node` process per site, joined as asked over wires that a test can close or silence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
from proxywires import Wires
from sitefleet import CLIENT, Fleet, NodeProcess

from trunkline.core.ids import ALL_SITES
from trunkline.db.embedded import free_port
from trunkline.queues.client import QueueClient
from waiting import eventually

Row = tuple[str, str, str, int]
"""Subscriber, source, via, depth."""
COUNTED = ("received", "duplicate", "stray")
HEARTBEAT = 0.5
MEET = b"how do you do"


def two_way(*pairs: str) -> dict[str, list[str]]:
    """`two_way("ab", "bc")`: a exchanges records with b, b with c."""
    links: dict[str, list[str]] = {name: [] for pair in pairs for name in pair}
    for a, b in pairs:
        links[a].append(b)
    return links


class Processes:
    def __init__(self, folder: Path, make_database: Callable[..., str], links: dict[str, list[str]], follows: bool) -> None:
        self.fleet = Fleet(folder)
        self.wires = Wires(self._pids)
        self._links, self._follows, self._make = links, follows, make_database
        self._met: dict[str, dict[str, int]] = {}

    def _pids(self) -> dict[str, int]:
        return {node.id.site: node.process.pid for node in self.fleet.nodes if node.process is not None}

    @contextmanager
    def running(self) -> Iterator[Processes]:
        with self.wires.running():
            seed = ""
            for site, others in self._links.items():
                self.fleet.add(site, ["n"], self._make("queues"))
                listen = f"127.0.0.1:{free_port()}"
                address = self.wires.lead_to(site, listen)
                seed = seed or address
                wanted = {"follows" if self._follows else "links": others}
                link = {"listen": listen, "advertise": [address], "seeds": [seed], "heartbeat_seconds": HEARTBEAT, **wanted}
                self.fleet.nodes[-1].config["link"] = link
            try:
                self.fleet.start()
                yield self
            finally:
                self.fleet.stop()

    # -- looking

    def node(self, site: str) -> NodeProcess:
        return self.fleet.of(site)[0]

    def table(self) -> set[Row]:
        rows = [row for site in self._links for row in self.node(site).view("topology").get("rows", ())]
        return {(r["subscriber"], r["source"], r["via"], r["depth"]) for r in rows}

    def until_table(self, expected: set[Row], seconds: float = 60.0) -> None:
        eventually(lambda: self.table() == expected, seconds, lambda: (sorted(self.table()), self.fleet.logs()))

    def until_quiet(self) -> None:
        """Every site has all there is of every other one's log."""

        def cursors(site: str) -> dict[str, int]:
            return {stream["origin"]: stream["cursor"] for stream in self.node(site).view("trunk").get("streams", ())}

        def quiet() -> bool:
            heads = {site: self.node(site).view("trunk").get("head") for site in self._links}
            return all(heads[origin] == at for site in self._links for origin, at in cursors(site).items())

        eventually(quiet, 60, self.fleet.logs)

    def meet(self, rows: set[Row]) -> None:
        """Every site hears of every other one's client, each in its own time; what that costs is not counted below."""
        for site in self._links:
            self.write(site, [MEET])
        for subscriber, source, _, _ in rows:
            eventually(lambda s=subscriber, o=source: self.fleet.received(s, o) == [MEET], 60, self.fleet.logs)
        self.until_quiet()
        self._met = {site: self.counted(site) for site in self._links}

    def moves(self, site: str) -> int:
        """Of origins that had a parent before."""
        counts = self.node(site).view("topology")["moves"]
        return int(counts["forced"] + counts["voluntary"] + counts["watchdog"])

    def counted(self, site: str) -> dict[str, int]:
        """Over all of its links."""
        links = self.node(site).view("trunk")["links"].values()
        met = self._met.get(site, {})
        return {what: sum(link.get(what, 0) for link in links) - met.get(what, 0) for what in COUNTED}

    def gained(self, site: str, before: dict[str, int]) -> dict[str, int]:
        return {what: count - before[what] for what, count in self.counted(site).items()}

    # -- records

    def write(self, site: str, payloads: Sequence[bytes]) -> None:
        """One transaction, for all sites."""
        with psycopg.connect(self.fleet.dsn[site]) as conn:
            for payload in payloads:
                QueueClient(CLIENT).transmit(conn, payload, (ALL_SITES,))

    def received(self, site: str, origin: str) -> list[bytes]:
        return [payload for payload in self.fleet.received(site, origin) if payload != MEET]

    def until_received(self, site: str, origin: str, expected: Sequence[bytes], seconds: float = 60.0) -> None:
        count = len(expected)
        eventually(lambda: len(self.received(site, origin)) >= count, seconds, self.fleet.logs)
        assert self.received(site, origin) == list(expected)

    @contextmanager
    def load(self, site: str, every: float = 0.01) -> Iterator[list[bytes]]:
        """Twenty records at a time until the block ends; all of them are in the list then."""
        written: list[bytes] = []
        end = threading.Event()

        def write() -> None:
            while not end.wait(every):
                payloads = [f"{site} {n}".encode() for n in range(len(written), len(written) + 20)]
                self.write(site, payloads)
                written.extend(payloads)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield written
        finally:
            end.set()
            thread.join()


def numbered(site: str, count: int, size: int = 0) -> list[bytes]:
    return [f"{site} {n}".encode().ljust(size, b".") for n in range(count)]
