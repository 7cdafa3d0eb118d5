"""Several nodes of one site: the lease moves, and whoever led before does nothing any more."""

from __future__ import annotations

import uuid

import pytest
from sim_runs import lived, write

from trunkline.db.keeper import Tenure
from trunkline.net.simhost import WALL_START
from trunkline.net.simnet import Note
from trunkline.node.sim.catalogue import CATALOGUE
from trunkline.node.sim.database import LeaseRow
from trunkline.node.sim.leased import TERMS, LeasedNode
from trunkline.node.sim.universe import Universe

SITE = CATALOGUE["site"]
HOLDERS = [uuid.UUID(int=n) for n in range(3)]


def reigns(notes: list[Note]) -> list[tuple[float, str, int]]:
    """When which node of the relay began to lead, under which epoch."""
    found = [n for n in notes if n.kind == "does" and n.who.startswith("relay/") and n.text.startswith("leads under")]
    return [(n.at, n.who, int(n.text.split()[-1])) for n in found]


def leader(universe: Universe) -> str:
    (found,) = [h for h, s in universe.sites.items() if h.startswith("relay/") and s.core.carrier is not None]
    return found


def first_leader() -> str:
    return reigns(lived(SITE)[1])[0][1]


def ended(notes: list[Note], who: str) -> list[float]:
    return [n.at for n in notes if n.kind == "does" and n.who == who and n.text.startswith("leads no more")]


# -- the row


def test_h02_epochs_only_grow_whatever_the_clock_does() -> None:
    now = [WALL_START]
    row = LeaseRow(lambda: now[0])
    epochs = []
    for jump in (0.0, 100.0, -5000.0, 11.0):
        now[0] += jump
        row.expires_at = 0.0
        grant = row.acquire(HOLDERS[0], 10.0)
        assert grant is not None
        epochs.append(grant.epoch)
    assert epochs == [int(WALL_START), int(WALL_START) + 100, int(WALL_START) + 101, int(WALL_START) + 102]


def test_a_lease_is_one_holder_s_until_it_lapses_or_is_released() -> None:
    now = [0.0]
    row = LeaseRow(lambda: now[0])
    first = row.acquire(HOLDERS[0], 10.0)
    assert first is not None
    assert row.acquire(HOLDERS[1], 10.0) is None
    now[0] = 9.0
    assert row.renew(first, 10.0)
    now[0] = 18.9
    assert row.acquire(HOLDERS[1], 10.0) is None
    now[0] = 19.0
    assert not row.renew(first, 10.0)
    second = row.acquire(HOLDERS[1], 10.0)
    assert second is not None
    assert not row.holds(first)
    row.release(first)
    assert row.holds(second), "only its own holder releases it"
    row.release(second)
    assert row.acquire(HOLDERS[2], 10.0) is not None


# -- the nodes


def test_one_node_leads_and_the_others_stand_by() -> None:
    _, notes = lived(SITE)
    assert len(reigns(notes)) == 1


@pytest.mark.parametrize("fault", ["crash", "power"])
def test_a_leader_that_dies_is_followed_within_a_lease_under_a_higher_epoch(fault: str) -> None:
    dead = first_leader()
    verdict, notes = lived(
        SITE, f"5.000 {fault} {dead} for 14.000", "6.000 write leaf status>hub", "7.000 write relay status>hub"
    )
    assert verdict.failures == ()
    (_, first, old), (at, second, new) = reigns(notes)
    assert (first, second != dead, new > old) == (dead, True, True)
    assert 5.0 < at <= 5.0 + TERMS.seconds + 1.0


def test_h03_a_paused_leader_steps_down_before_it_does_anything_else() -> None:
    asleep = first_leader()
    verdict, notes = lived(
        SITE, f"4.000 pause {asleep} for 14.000", "5.000 write leaf status>hub", "17.990 write leaf status>hub"
    )
    assert verdict.failures == ()
    (_, first, _), (at, second, _) = reigns(notes)
    assert (first, second != first) == (asleep, True)
    assert at < 18.0, "another led while it slept"
    woke = [n for n in notes if n.who == asleep and n.at >= 18.0]
    assert [n.kind for n in woke[:3]] == ["over", "resume", "does"]
    assert woke[2].text.startswith("leads no more")


def test_h03_a_leader_without_its_database_stops_before_the_lease_can_lapse() -> None:
    cut_off = first_leader()
    verdict, notes = lived(SITE, f"4.000 nodb {cut_off} for 15.000", "6.000 write leaf status>hub")
    assert verdict.failures == ()
    begun = next(at for at, who, _ in reigns(notes) if who != cut_off)
    (stopped, *_) = ended(notes, cut_off)
    assert 4.0 + TERMS.seconds - TERMS.renew_every - TERMS.margin - 1.0 < stopped < begun


def test_h03_a_leader_whose_clock_leapt_stops_early_rather_than_late() -> None:
    leapt = first_leader()
    verdict, notes = lived(SITE, f"4.000 leap {leapt} by 30.000", "6.000 write leaf status>hub")
    assert verdict.failures == ()
    assert ended(notes, leapt)[0] < 4.2


def test_h01_when_the_database_s_clock_jumps_two_may_think_they_lead_and_the_old_one_writes_nothing() -> None:
    """Outside what a lease can promise: time itself is wrong. The fence holds all the same."""
    universe = Universe(SITE, 2)
    universe.net.run(4.0)
    old = leader(universe)
    node = universe.sites[old]
    assert isinstance(node, LeasedNode)
    grant = node.tenure.grant
    assert grant is not None
    universe.net.hosts[old].detach()
    universe.database_clock_error = 60.0
    universe.net.run(4.0 + TERMS.seconds - TERMS.renew_every - TERMS.margin - 0.2)
    assert len([s for h, s in universe.sites.items() if h.startswith("relay/") and s.core.carrier is not None]) == 2
    wrote: list[str] = []
    assert universe.databases["relay"].fenced(grant, lambda: wrote.append("something")) is None
    assert wrote == []


def test_the_witness_sees_a_leader_that_does_not_stop() -> None:
    """Its clock stands still, so its tenure never ends: the check must be able to fail."""
    universe = Universe(SITE, 2)
    universe.net.run(4.0)
    old = leader(universe)
    node = universe.sites[old]
    assert isinstance(node, LeasedNode)

    class Stopped:
        def monotonic(self) -> float:
            return 0.0

        def wall(self) -> float:
            return 0.0

    stuck = Tenure(Stopped(), TERMS, node.tenure.grant)
    stuck.won(node.tenure.grant, 0.0)  # type: ignore[arg-type]
    node.tenure = stuck
    universe.net.hosts[old].detach()
    universe.net.run(20.0)
    assert universe.witness.failures[0].check == "H03"


def test_the_witness_sees_an_epoch_that_comes_again() -> None:
    universe = Universe(SITE, 2)
    universe.databases["relay"].led = 2**31
    write(universe, "relay", ("status", "hub", b"x"))
    universe.net.run(4.0)
    assert {failure.check for failure in universe.witness.failures} == {"H01", "H02", "H03"}


def test_applications_write_while_nobody_leads_and_nothing_of_it_is_lost() -> None:
    universe = Universe(SITE, 3)
    universe.net.run(4.0)
    for node in ("n1", "n2", "n3"):
        universe.net.crash(f"relay/{node}")
    write(universe, "relay", ("status", "hub", b"1"), ("status", "leaf", b"2"))
    universe.net.run(10.0)
    assert universe.databases["relay"].log.head().seq == 0
    universe.net.restart("relay/n2")
    assert universe.net.run(40.0, done=lambda: len(universe.databases["hub"].sink.received.get("relay", [])) == 1)
