"""A fleet's compliance through the bridge, again and again: from empty, flipped, and sent once more as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bridgeparts.feeder import Make, made
from bridgeparts.hub import Hub
from bridgeparts.payloads import BASE, CLUSTERS, FLIP, Fleet, clusters, compliance, flip
from harness import Result

_COUNTER = "SELECT coalesce(sum(rows_written), 0)::bigint FROM bridge.counter"
_TOUCHED = "SELECT count(*) FROM fleet.compliance WHERE xmin::text::bigint >= %s"


@dataclass(frozen=True)
class Took:
    """From the first message sent to the last commit. `intake`: the part of it until all was in the inbox."""

    rows: int
    seconds: float
    intake: float
    cpu: Mapping[str, float]

    @property
    def per_s(self) -> float:
        return self.rows / self.seconds


class Rounds:
    def __init__(self, hub: Hub, fleet: Fleet, shared: bool = False) -> None:
        self._hub, self._fleet, self._shared = hub, fleet, shared
        self._generation = self._base = 0

    def seed(self) -> None:
        """The hub knows the clusters, as it usually does."""
        self._go(CLUSTERS, made(clusters, self._fleet, self._next()), 0)

    def insert(self) -> Took:
        """Every row, into an empty table."""
        self._hub.conn.execute("TRUNCATE fleet.compliance")
        self._hub.conn.execute("CHECKPOINT")
        took = self._send_base(self._fleet.flipped(0), self._fleet.rows)
        self._require(self._fleet.flipped(0))
        return took

    def flip(self) -> Took:
        took = self._send_flip(self._fleet, self._fleet.flips)
        self._require(self._fleet)
        return took

    def resend(self) -> tuple[Took, int]:
        """Both bundles once more, newer, with the rows that are there; and how many rows were written all the same."""
        hub, fleet = self._hub, self._fleet
        counted, mark = hub.one(_COUNTER), int(hub.one("SELECT pg_current_xact_id()::text"))
        base = self._send_base(fleet, fleet.rows)
        again = self._send_flip(fleet, fleet.flips)
        self._require(fleet)
        written = max(hub.one(_COUNTER) - counted, hub.one(_TOUCHED, mark))
        cpu = {name: base.cpu[name] + again.cpu[name] for name in base.cpu}
        both = Took(base.rows + again.rows, base.seconds + again.seconds, base.intake + again.intake, cpu)
        return both, int(written)

    def _next(self) -> int:
        self._generation += 1
        return self._generation

    def _send_base(self, fleet: Fleet, rows: int) -> Took:
        self._base = self._next()
        return self._go(BASE, made(compliance, fleet, self._base), rows)

    def _send_flip(self, fleet: Fleet, rows: int) -> Took:
        return self._go(FLIP, made(flip, fleet, self._next(), self._base), rows)

    def _go(self, type_: str, make: Make, rows: int) -> Took:
        hub = self._hub
        hub.feeder.prepare(make)
        split = hub.split()
        sent = hub.feeder.send(self._shared)
        last = hub.wait_applied([type_], self._generation, self._fleet.sites, self._fleet.prefix)
        return Took(rows, last - sent.first, hub.last_taken_in() - sent.first, split.used())

    def _require(self, fleet: Fleet) -> None:
        states = dict(self._hub.conn.execute("SELECT state::text, count(*) FROM fleet.compliance GROUP BY 1").fetchall())
        expected = {"compliant": fleet.rows - fleet.flips, "non_compliant": fleet.flips}
        assert states == {state: count for state, count in expected.items() if count}, f"{states}, not {expected}"


def cpu(name: str, took: Iterable[Took]) -> list[Result]:
    """What a row costs, and where."""
    rounds = list(took)
    rows = sum(one.rows for one in rounds)
    spent = {part: sum(one.cpu[part] for one in rounds) for part in rounds[0].cpu if part != "sender"}
    whole = sum(spent.values())
    shares = [Result(f"cpu_us_per_row_{name}_{part}", round(s / rows * 1e6, 2), "µs") for part, s in spent.items()]
    return [*shares, Result(f"cpu_us_per_row_{name}", round(whole / rows * 1e6, 2), "µs of all, without the sender")]
