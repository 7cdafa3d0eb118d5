"""Runs of senders without incarnation: what is sent later has the greater version, whatever the sender's counters say."""

from __future__ import annotations

import pytest
from bridge_hub import AT, Hub, auto, clusters
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from trunkline.bridge.batch import Arrived
from trunkline.bridge.runs import Run, tell, tell_all
from trunkline.core.bundle import Bundle, Chunk, Dependency, Mode, Version

QUEUE = "status.h1@0"
LATER = "2026-01-01T01:00:00+00:00"


def sent(generation: int, position: int, queue: str = QUEUE, **more: object) -> Arrived:
    options = {"mode": Mode.COMPLETE, "rows": [], "value": generation} | more
    mode, rows, value = options.pop("mode"), options.pop("rows"), options.pop("value")
    return Arrived(auto("h1", "clusters", mode, generation, value, rows, **options), queue, position)  # type: ignore[arg-type]


def told(*arrived: Arrived, above: int = 0) -> tuple[Run, list[Version | None]]:
    run: Run | None = None
    versions: list[Version | None] = []
    for one in arrived:
        run, bundle = tell(run, one, above)
        versions.append(bundle.version if bundle else None)
    assert run is not None
    return run, versions


def test_h39_generation_0_begins_a_run_whose_incarnation_is_its_position() -> None:
    _, versions = told(sent(5, 10), sent(6, 11), sent(0, 40), sent(1, 41))
    assert versions == [Version(10, 5), Version(10, 6), Version(40, 0), Version(40, 1)]


def test_h39_an_incarnation_is_at_least_one_more_than_any_before_it() -> None:
    """A topic made anew begins at 0; and the sender may have kept incarnations itself, before."""
    _, versions = told(sent(5, 10), sent(0, 3, queue="status.h1@1"), sent(0, 0, queue="status.h1@2"), sent(0, 2, queue="q"))
    assert versions == [Version(10, 5), Version(11, 0), Version(12, 0), Version(13, 0)]
    assert told(sent(0, 0))[1] == [Version(1, 0)]
    assert told(sent(0, 7), above=99)[1] == [Version(100, 0)]


def test_h39_the_message_that_began_a_run_begins_nothing_when_it_comes_again() -> None:
    first = sent(0, 10)
    run, versions = told(first, sent(1, 11), replace(first, position=12))
    assert versions == [Version(10, 0), Version(10, 1), None]
    assert (run.incarnation, run.began_with) == (10, first.bundle.id)


def test_t1_a_session_that_was_not_heard_before_begins_a_run() -> None:
    _, versions = told(sent(500, 10, session="one"), sent(7, 11, session="two"), sent(6, 12, session="two"))
    assert versions == [Version(10, 500), Version(11, 7), Version(11, 6)]


def test_t1_generation_0_begins_nothing_inside_a_session() -> None:
    _, versions = told(sent(0, 10, session="one"), sent(0, 11, session="one"))
    assert versions == [Version(10, 0), Version(10, 0)]


@pytest.mark.parametrize(("time", "version"), [(LATER, Version(11, 7)), (AT, Version(10, 7))], ids=["later", "not later"])
def test_t1_without_sessions_a_generation_that_goes_back_while_time_goes_on_begins_a_run(time: str, version: Version) -> None:
    _, versions = told(sent(500, 10), sent(7, 11, time=time))
    assert versions == [Version(10, 500), version]


def test_t4_what_stands_before_the_beginning_of_a_run_is_dropped_in_its_queue_only() -> None:
    _, versions = told(sent(500, 10), sent(0, 20), sent(501, 11, time=LATER), sent(3, 15, queue="status.h1@1"))
    assert versions == [Version(10, 500), Version(20, 0), None, Version(20, 3)]


def test_t4_a_stray_of_the_session_before_is_dropped_wherever_it_stands() -> None:
    _, versions = told(sent(500, 10, session="one"), sent(7, 11, session="two"), sent(501, 12, session="one"))
    assert versions == [Version(10, 500), Version(11, 7), None]


def test_t5_the_other_parts_of_the_bundle_that_began_a_run_are_of_that_run() -> None:
    first, second = (sent(0, 10 + n, rows=b"x" * 5, chunk=Chunk(5 + 5 * n, 10)) for n in range(2))
    assert first.bundle.id != second.bundle.id
    assert told(sent(9, 1), first, second, replace(first, position=12))[1] == [Version(1, 9), *[Version(10, 0)] * 3]


def test_t6_append_bundles_are_never_dropped() -> None:
    first = sent(0, 10, mode=Mode.APPEND)
    _, versions = told(first, sent(3, 5, mode=Mode.APPEND), replace(first, position=11))
    assert versions == [Version(10, 0), Version(10, 3), Version(10, 0)]


def delta(needs: int, position: int, session: str = "", run: int = 0) -> Arrived:
    base = Dependency("clusters", Version(run, needs))
    return Arrived(auto("h1", "changes", Mode.DELTA, position, 1, [], needs=base, session=session), QUEUE, position)


def needed(*arrived: Arrived, runs: dict[tuple[str, str], Run] | None = None) -> list[Version]:
    _, kept = tell_all(runs or {}, arrived, {})
    return [one.bundle.dependency.version for one in kept if one.bundle.dependency]


def test_t8_a_dependency_means_the_run_its_base_is_of_at_that_place() -> None:
    assert needed(delta(7, 9), sent(5, 10, value=7), delta(7, 11), sent(0, 20), delta(7, 21)) == [
        Version(0, 7), Version(10, 7), Version(20, 7),
    ]  # fmt: skip
    before, _ = tell_all({}, [sent(5, 10)], {})
    assert needed(delta(7, 11), runs=before) == [Version(10, 7)]
    assert needed(sent(5, 10), delta(7, 11, run=3)) == [Version(3, 7)]  # said by its sender


def test_t8_a_session_tells_the_run_wherever_the_base_stands() -> None:
    """The first bases of a session are conflated away on Spark, so the one that is left may stand behind its first deltas."""
    assert needed(
        sent(5, 10, session="one"), delta(7, 11, "two"), sent(9, 20, session="two"), delta(1, 29, "three"), delta(9, 30, "one")
    ) == [Version(20, 7), Version(0, 1), Version(10, 9)]  # fmt: skip


def test_bundles_with_an_incarnation_are_left_alone() -> None:
    ours = Arrived(clusters("h1", 3), QUEUE, 1)
    assert tell_all({}, [ours], {}) == ({}, [ours])


class Sender:
    """One that counts from 0 (or, if its first bundles never came, from more) whenever it starts."""

    def __init__(self, has_sessions: bool) -> None:
        self.has_sessions = has_sessions
        self.runs, self.generation, self.seconds, self.position = 0, -1, 0, 0
        self.log: list[Arrived] = []
        self.begins_at = 0

    def start(self, unsent: int) -> None:
        self.runs += 1
        self.generation = unsent - 1
        self.begins_at = len(self.log)

    def send(self, skipped: int) -> Arrived:
        self.generation += 1 + skipped
        self.seconds += 1
        time = f"2026-01-01T{self.seconds // 3600:02}:{self.seconds // 60 % 60:02}:{self.seconds % 60:02}Z"
        session = f"session {self.runs}" if self.has_sessions else ""
        return self._append(sent(self.generation, 0, session=session, time=time).bundle)

    def send_again(self, back: int) -> Arrived | None:
        """The same message of this run, as a producer that heard no answer sends it."""
        mine = self.log[self.begins_at :]
        return self._append(mine[-1 - back % len(mine)].bundle) if mine else None

    def _append(self, bundle: Bundle) -> Arrived:
        self.position += 1
        self.log.append(Arrived(bundle, QUEUE, self.position))
        return self.log[-1]


STEPS = st.one_of(
    st.tuples(st.just("start"), st.integers(0, 3)),
    st.tuples(st.just("send"), st.integers(0, 2)),
    st.tuples(st.just("again"), st.integers(0, 3)),
    st.tuples(st.just("replay"), st.integers(0, 30)),
)


@settings(max_examples=300, deadline=None)
@given(has_sessions=st.booleans(), steps=st.lists(STEPS, max_size=40))
def test_h39_versions_follow_the_order_of_sending(has_sessions: bool, steps: list[tuple[str, int]]) -> None:
    """What was sent later is newer; a message that comes again, or is read again, never is."""
    sender = Sender(has_sessions)
    sender.start(0)
    run: Run | None = None
    newest = Version(0, 0)
    for step, number in steps:
        if step == "start":
            sender.start(number)
            continue
        arrived = {
            "send": lambda n: sender.send(n),
            "again": lambda n: sender.send_again(n),
            "replay": lambda n: sender.log[n] if n < len(sender.log) else None,
        }[step](number)
        if arrived is None:
            continue
        before = run
        run, bundle = tell(run, arrived)
        if step == "send":
            assert bundle is not None
            assert bundle.version > newest
            newest = bundle.version
        else:
            assert bundle is None or bundle.version <= newest
            assert before is not None
            assert run.incarnation == before.incarnation


def test_runs_are_kept_with_the_batch_that_began_them(hub: Hub) -> None:
    first = auto("h1", "clusters", Mode.COMPLETE, 0, 1, [], id_="first")
    hub.take_in(first, auto("h1", "events", Mode.APPEND, 0, 1, []), clusters("h2", 3))
    hub.take_in(auto("h1", "clusters", Mode.COMPLETE, 4, 2, [], time=LATER))
    found = hub.rows(
        "SELECT type, incarnation, began_with, position, generation, sent_at = %s FROM bridge.run ORDER BY 1", LATER
    )
    assert found[0] == ("clusters", 1, "first", 1, 4, True)
    assert [(type_, incarnation) for type_, incarnation, *_ in found] == [("clusters", 1), ("events", 2)]
    assert hub.rows("SELECT incarnation, generation, value FROM bridge.inbox WHERE (site, type) = ('h1', 'clusters')") == [
        (1, 4, 2)
    ]


def test_t8_the_run_of_a_base_is_known_from_batches_before(hub: Hub) -> None:
    needs = Dependency("complete-compliance", Version(0, 4))
    hub.take_in(auto("h1", "complete-compliance", Mode.COMPLETE, 0, 4, [], id_="base"))
    hub.take_in(auto("h1", "compliance-delta", Mode.DELTA, 0, 1, [], needs=needs))
    [(run,)] = hub.rows("SELECT incarnation FROM bridge.run WHERE type = 'complete-compliance'")
    assert hub.rows("SELECT dependency_incarnation, dependency_generation FROM bridge.inbox WHERE mode = 'delta'") == [(run, 4)]


def test_a_sender_that_gave_its_incarnations_up_goes_on_above_them(hub: Hub) -> None:
    hub.take_in(clusters("h1", 3))
    hub.conn.execute("UPDATE bridge.inbox SET incarnation = 1700000000")
    hub.conn.commit()
    hub.take_in(auto("h1", "clusters", Mode.COMPLETE, 0, 0, []))
    assert hub.rows("SELECT incarnation, generation FROM bridge.inbox") == [(1_700_000_001, 0)]
