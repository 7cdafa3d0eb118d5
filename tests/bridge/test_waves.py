"""Many sites in one transaction: all applied, or each by itself, and never more at once than was meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg
import pytest
from bridge_apply import Run, runner
from bridge_hub import Hub, cluster, clusters, compliance, event, events, verdict

from trunkline.bridge import apply as applying
from trunkline.bridge.apply import Outcome, apply_wave
from trunkline.bridge.judgement import Verdict
from trunkline.core.bundle import Version
from trunkline.core.errors import Invalid


@pytest.fixture
def run(hub: Hub) -> Iterator[Run]:
    with runner(hub) as start:
        yield start


def wave(hub: Hub, type_: str, *sites: str) -> dict[str, Outcome]:
    return {o.site: o for o in apply_wave(hub.conn, hub.grant, hub.types, type_, sites)}


def test_each_site_of_a_wave_is_judged_by_itself(hub: Hub) -> None:
    hub.take_in(*[clusters(site, 2, cluster("c", site)) for site in ("stale", "new", "parked")])
    wave(hub, "clusters", "stale", "new", "parked")
    hub.take_in(clusters("stale", 1, cluster("c", "old")), clusters("new", 3, cluster("d", "new")), clusters("none", 1))
    found = wave(hub, "clusters", "stale", "new", "nobody", "none")
    assert {site: (o.verdict, o.applied, o.named) for site, o in found.items()} == {
        "stale": (Verdict.STALE, None, Version(1, 2)),
        "new": (Verdict.APPLIED, Version(1, 3), Version(1, 3)),
        "nobody": (Verdict.NOTHING, None, None),
        "none": (Verdict.APPLIED, Version(1, 1), Version(1, 1)),
    }
    assert (hub.health("stale"), hub.health("new"), hub.health("parked")) == ({"c": "stale"}, {"d": "new"}, {"c": "parked"})
    hub.take_in(compliance("parked", 1, 3, verdict("c")), compliance("new", 1, 3, verdict("d")))
    dependents = wave(hub, "compliance", "parked", "new")
    assert {site: o.verdict for site, o in dependents.items()} == {"parked": Verdict.PARKED, "new": Verdict.APPLIED}
    assert hub.inbox() == [("parked", "compliance", 1)]
    counted = hub.rows("SELECT site, applied, stale, rows_received, rows_written FROM bridge.counter ORDER BY site")
    assert counted == [("new", 3, 0, 3, 4), ("none", 1, 0, 0, 0), ("parked", 1, 0, 1, 1), ("stale", 1, 1, 1, 1)]


def test_a_wave_takes_no_more_than_fits_into_one_transaction(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    bundles = [clusters(site, 1, *[cluster(f"c{n}") for n in range(20)]) for site in ("a", "b", "c")]
    hub.take_in(*bundles)
    monkeypatch.setattr(applying, "WAVE_BYTES", len(bundles[0].data) + 1)
    assert list(wave(hub, "clusters", "c", "a", "b")) == ["c", "a"]
    assert list(wave(hub, "clusters", "b")) == ["b"]
    hub.take_in(*[events("a", n, *[event(100 * n + m) for m in range(30)]) for n in range(1, 4)])
    wave(hub, "events", "a")
    assert [generation for _, _, generation in hub.inbox()] == [2, 3]


def test_more_bundles_of_a_site_than_one_transaction_takes_stay_in_order(hub: Hub) -> None:
    hub.take_in(*[events("a", n, event(n)) for n in range(1, 8)])
    for _ in range(3):
        apply_wave(hub.conn, hub.grant, hub.types, "events", ["a"], most=2)
    assert [generation for _, _, generation in hub.inbox()] == [7]
    assert hub.rows("SELECT count(*) FROM status.event") == [(6,)]


def test_a_wave_that_fails_leaves_nothing(hub: Hub) -> None:
    hub.take_in(clusters("good", 1, cluster("c")), clusters("bad", 1, raw=b"[{"))
    with pytest.raises(Invalid):
        wave(hub, "clusters", "good", "bad")
    assert hub.health("good") == {}
    assert len(hub.inbox()) == 2


def test_one_poison_site_of_a_wave_is_tried_alone_and_costs_itself_only(hub: Hub, run: Run) -> None:
    sites = [f"s{n:02}" for n in range(40)]
    hub.take_in(*[clusters(site, 1, cluster("c"), raw=b"[{" if site == "s07" else None) for site in sites])
    running = run(2)
    running.until_empty()
    assert hub.rows("SELECT site FROM status.cluster ORDER BY site") == [(s,) for s in sites if s != "s07"]
    assert hub.rows("SELECT site, state FROM bridge.quarantine") == [("s07", "open")]
    counted = hub.rows("SELECT site, applied, quarantined FROM bridge.counter ORDER BY site")
    assert counted == [(s, int(s != "s07"), int(s == "s07")) for s in sites]


def test_one_poison_bundle_among_appended_ones_costs_itself_only(hub: Hub, run: Run) -> None:
    bundles = [events("a", n, event(n) if n != 3 else {"id": "no event"}) for n in range(1, 8)]
    hub.take_in(*bundles)
    run(2).until_empty()
    assert hub.rows("SELECT id FROM status.event ORDER BY id") == [(f"e{n}",) for n in (1, 2, 4, 5, 6, 7)]
    assert hub.rows("SELECT key, mode, payload FROM bridge.quarantine") == [(bundles[2].id, "append", bundles[2].data)]
    assert hub.rows("SELECT applied, quarantined FROM bridge.counter") == [(6, 1)]


def test_a_burst_of_1000_sites_and_3_types_at_once_is_all_applied(hub: Hub, run: Run) -> None:
    sites = [f"s{n:03}" for n in range(1000)]
    burst = [
        bundle
        for site in sites
        for bundle in (compliance(site, 1, 1, verdict("c")), clusters(site, 1, cluster("c")), events(site, 1, event(1)))
    ]
    running = run(4)
    running.arrive(*burst)
    running.until_empty(100)
    for table in ("cluster", "compliance", "event"):
        assert hub.rows(f"SELECT site FROM status.{table} ORDER BY site") == [(site,) for site in sites]
    assert hub.rows("SELECT DISTINCT received, applied FROM bridge.counter") == [(3, 3)]


class Elsewhere:
    """Waves that run on another connection, as on an executor; the first of them is lost with its executor."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.asked: list[Sequence[str]] = []

    def run(self, type_name: str, sites: Sequence[str]) -> list[Outcome]:
        self.asked.append(sites)
        if len(self.asked) == 1:
            raise RuntimeError("the executor is lost")
        with psycopg.connect(self.hub.dsn) as conn:
            return apply_wave(conn, self.hub.grant, self.hub.types, type_name, sites)


def test_large_waves_may_run_elsewhere_and_small_ones_do_not(hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.bridge.workers.LARGE_WAVE", 20_000)
    elsewhere = Elsewhere(hub)
    hub.take_in(*[clusters(f"small{n}", 1, cluster("c")) for n in range(5)])
    running = run(1, waves=elsewhere)
    running.until_empty()
    assert elsewhere.asked == []
    for generation in (1, 2):
        rows = [cluster(f"c{n}", revision=generation) for n in range(50)]
        running.arrive(*[clusters(f"large{n}", generation, *rows) for n in range(5)])
        running.until_empty()
    assert len(elsewhere.asked) == 2
    assert hub.rows("SELECT count(*), min(revision) FROM status.cluster WHERE starts_with(site, 'large')") == [(250, 2)]
