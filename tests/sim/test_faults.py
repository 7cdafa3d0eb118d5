"""Every fault really happens: it is seen in the trace, and the universe comes right all the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
from sim_runs import CHAIN, carried, history, lived

from trunkline.core.errors import Invalid
from trunkline.net.simhost import DISK_SECONDS
from trunkline.net.simnet import Note
from trunkline.net.simwires import DELAY, SILENCE
from trunkline.node.sim.catalogue import CATALOGUE
from trunkline.node.sim.faults import KINDS, Subject
from trunkline.node.sim.universe import Universe, run_history

PAIR = carried((("a", "b"),))


def frames(notes: list[Note], kind: str, sender: str, receiver: str) -> list[Note]:
    return [n for n in notes if n.kind == kind and (n.who, n.to) == (sender, receiver)]


def told(notes: list[Note], kind: str, who: str) -> list[Note]:
    return [n for n in notes if n.kind == kind and n.who == who]


def times(notes: list[Note], since: float = 0.0, until: float = 99.0) -> list[float]:
    return [n.at for n in notes if since <= n.at <= until]


WRITES = tuple(f"{3 + n / 10:.3f} write a status>b" for n in range(60))


def came_right(*faults: str) -> list[Note]:
    verdict, notes = lived(PAIR, *WRITES, *faults)
    assert verdict.failures == ()
    return notes


def test_loss_frames_vanish_and_what_follows_arrives() -> None:
    notes = came_right("3.000 loss a>b for 5.000 by 0.500")
    lost = times(frames(notes, "lost", "a", "b"))
    assert len(lost) > 5
    assert all(3.0 <= at <= 8.0 for at in lost)
    assert frames(notes, "lost", "b", "a") == []
    arrived = times(frames(notes, "frame", "a", "b"), lost[0], lost[-1])
    assert arrived, "the connection lives on"
    assert told(notes, "unlink", "b") == []


def test_slow_delays_grow_and_order_stays() -> None:
    calm, slow = came_right(), came_right("3.000 slow a>b for 5.000 by 1.500")

    def longest_wait(notes: list[Note]) -> float:
        arrived = times(frames(notes, "frame", "a", "b"), 3.0, 8.0)
        return max(b - a for a, b in pairwise(arrived))

    assert longest_wait(slow) > 3 * max(longest_wait(calm), DELAY[1])


@pytest.mark.parametrize(("subject", "deaf"), [("a>b", ["b"]), ("b>a", ["a"]), ("a<>b", ["a", "b"])])
def test_cut_both_ends_or_one_notice_after_the_silence_limit(subject: str, deaf: list[str]) -> None:
    notes = came_right(f"4.000 cut {subject} for 5.000")
    for way in (("a", "b"), ("b", "a")):
        heard = times(frames(notes, "frame", *way), 4.0 + DELAY[1], 9.0)
        assert bool(heard) == (way[1] not in deaf)
    silent = [n for n in notes if n.kind == "unlink" and n.text == "silent"]
    assert sorted(n.who for n in silent) == deaf
    assert all(n.at == pytest.approx(4.0 + SILENCE) for n in silent)
    ups = [n.at for n in notes if n.kind == "link" and n.at > 4.0]
    assert min(ups) > 9.0, "nobody gets through while one way is cut"


def test_a_short_cut_only_delays_what_was_sent() -> None:
    notes = came_right("4.000 cut a>b for 1.500")
    assert times(frames(notes, "frame", "a", "b"), 4.0 + DELAY[1], 5.5) == []
    assert len(times(frames(notes, "frame", "a", "b"), 5.5, 5.5 + DELAY[1])) > 5
    assert [n for n in notes if n.kind == "unlink"] == []


def test_split_parts_a_group_from_the_rest_and_from_nobody_in_it() -> None:
    verdict, notes = lived(CATALOGUE["ring"], "4.000 split a,b for 6.000", "5.000 write a status>b,c")
    assert verdict.failures == ()
    during = [n for n in notes if n.kind == "frame" and 4.0 + DELAY[1] < n.at < 10.0]
    inside, outside = {"a", "b"}, {"c", "d"}
    assert {frozenset((n.who, n.to)) for n in during} == {frozenset(inside), frozenset(outside)}


@pytest.mark.parametrize(("subject", "ends"), [("a>b", ["a", "b"]), ("a<>b", ["a", "b"])])
def test_mute_the_connection_stays_up_and_swallows_until_the_silence_limit(subject: str, ends: list[str]) -> None:
    notes = came_right(f"4.000 mute {subject} for 9.000")
    swallowed = times(frames(notes, "swallowed", "a", "b"))
    assert len(swallowed) > 5
    assert 4.0 <= swallowed[0] < swallowed[-1] <= 4.0 + SILENCE + DELAY[1]
    downs = {n.who: n for n in notes if n.kind == "unlink"}
    assert sorted(downs) == ends
    assert downs["b"].text == "silent"
    assert downs["b"].at == pytest.approx(4.0 + SILENCE)
    reason = "silent" if subject == "a<>b" else "ended by the peer"
    assert downs["a"].text == reason, "who still hears the other learns it from it"
    assert min(times(frames(notes, "frame", "a", "b"), 4.1)) < 7.0, "a new connection works at once"


def test_a_short_mute_loses_frames_of_a_connection_that_lives_on() -> None:
    notes = came_right("4.000 mute a>b for 1.000")
    assert len(frames(notes, "swallowed", "a", "b")) > 2
    assert [n for n in notes if n.kind == "unlink"] == []


def test_reset_a_new_connection_overtakes_what_the_old_one_has_under_way() -> None:
    notes = came_right("4.020 slow a>b for 1.000 by 0.800", "4.500 reset a>b by 3.000")
    (broken,) = [n for n in told(notes, "unlink", "a") if n.text == "reset"]
    new = next(n for n in told(notes, "link", "b") if n.at > broken.at)
    assert new.connection > broken.connection
    first_new = next(n for n in frames(notes, "frame", "a", "b") if n.connection == new.connection)
    late = [n for n in frames(notes, "late", "a", "b") if n.connection == broken.connection]
    assert late, "what was under way comes in the end"
    assert all(n.at > first_new.at for n in late)
    assert not [n for n in frames(notes, "frame", "a", "b") if n.connection == broken.connection and n.at > new.at]


def test_reset_until_it_has_the_new_connection_a_receiver_takes_what_the_old_one_brings() -> None:
    notes = came_right("4.020 slow a>b for 1.000 by 0.200", "4.500 reset a>b by 0.040")
    (broken,) = [n for n in told(notes, "unlink", "a") if n.text == "reset"]
    after = [n for n in frames(notes, "frame", "a", "b") if n.connection == broken.connection and n.at > broken.at]
    assert after


def test_crash_the_process_is_gone_and_its_peers_are_told() -> None:
    notes = came_right("4.000 crash b for 3.000")
    assert times(told(notes, "crash", "b")) == [4.0]
    assert times(told(notes, "start", "b")) == [0.0, 7.0]
    assert times(frames(notes, "frame", "a", "b"), 4.0, 7.0) == []
    (down,) = [n for n in told(notes, "unlink", "a") if n.at < 7.0]
    assert down.text == "ended by the peer"
    assert down.at < 4.1


def test_power_nobody_is_told_and_peers_notice_by_silence() -> None:
    notes = came_right("4.000 power b for 4.000")
    (down,) = [n for n in told(notes, "unlink", "a") if n.at < 8.0]
    assert (down.text, down.at) == ("silent", pytest.approx(4.0 + SILENCE))


def test_a_host_that_returns_before_it_was_missed_replaces_its_old_connection() -> None:
    notes = came_right("4.000 power b for 0.500")
    assert [n.text for n in told(notes, "unlink", "a")] == ["replaced by a new one"]


def test_a_crash_between_the_durable_step_and_its_answer_repeats_nothing() -> None:
    for at in range(4_000, 4_100, 7):
        verdict, _ = lived(PAIR, "3.900 write a status>b", "3.950 write a status>b", f"{at / 1000:.3f} crash b for 1.000")
        assert verdict.failures == ()


def test_pause_nothing_happens_and_then_everything_at_once() -> None:
    notes = came_right("4.000 pause b for 1.500")
    assert [n.kind for n in notes if 4.0 <= n.at < 5.5 and n.who == "b"] == ["fault", "pause"]
    assert frames(notes, "frame", "a", "b")
    assert times(frames(notes, "frame", "a", "b"), 4.0001, 5.4999) == []
    burst = times(frames(notes, "frame", "a", "b"), 5.5, 5.5)
    assert len(burst) > 5
    assert told(notes, "resume", "b")[0].text == f"{len(burst) + 1} things waited", "and one tick"


def test_a_long_pause_costs_the_link_at_its_peer_but_not_at_once_in_itself() -> None:
    notes = came_right("4.000 pause b for 6.000")
    downs = [(n.who, n.text) for n in notes if n.kind == "unlink"]
    assert downs == [("a", "silent"), ("b", "ended by the peer")]


def test_leap_the_clock_of_one_process_leaps_and_never_goes_back() -> None:
    universe = Universe(PAIR, 1)
    universe.net.run(3.0)
    clock = universe.net.hosts["a"].clock
    before = clock.monotonic()
    KINDS["leap"].begin(universe.net, history(PAIR, "3.000 leap a by 40.000").events[0])  # type: ignore[arg-type]
    assert clock.monotonic() == before + 40.0
    assert universe.net.hosts["b"].clock.monotonic() == universe.net.now
    notes = came_right("12.000 leap b by 40.000")
    subscribed = [n for n in frames(notes, "frame", "b", "a") if n.at > 12.0 and b"subscribe" in n.body]
    assert subscribed, "to b the stream was silent for 40 s"


def test_a_leap_beyond_every_ttl_empties_one_store_and_the_others_fill_it_again() -> None:
    store = CATALOGUE["store"]
    verdict, notes = lived(store, "2.000 persist a app:k1 of 1", "5.000 leap c by 400.000")
    assert verdict.failures == ()
    assert [n for n in notes if n.kind == "frame" and n.to == "c" and n.at > 5.0 and b"app:k1" in n.body]


def test_wall_the_wall_clock_jumps_and_the_monotonic_clock_does_not() -> None:
    universe = Universe(CATALOGUE["site"], 1)
    clock = universe.net.hosts["relay/n1"].clock
    before = clock.wall(), clock.monotonic()
    KINDS["wall"].begin(universe.net, history(PAIR, "0.000 wall relay/n1 by -500.000").events[0])  # type: ignore[arg-type]
    assert (clock.wall(), clock.monotonic()) == (before[0] - 500.0, before[1])


def stored_at(notes: list[Note]) -> list[float]:
    return [n.at for n in notes if n.kind == "does" and n.who == "b" and n.text.startswith("stored")]


def test_stall_nothing_becomes_durable_until_it_ends() -> None:
    notes = came_right("4.000 stall b for 3.000")
    during = [at for at in stored_at(notes) if 4.0 < at < 7.0]
    assert during == []
    assert min(at for at in stored_at(notes) if at > 4.0) == pytest.approx(7.0)


def test_slowdisk_durable_work_takes_many_times_as_long() -> None:
    universe = Universe(PAIR, 1)
    universe.net.run(1.0)
    disk = universe.net.disks["b"]
    KINDS["slowdisk"].begin(universe.net, history(PAIR, "1.000 slowdisk b for 5.000 by 99.000").events[0])  # type: ignore[arg-type]
    done: list[float] = []
    universe.net.hosts["b"].ask_disk(lambda: done.append(universe.net.now))
    universe.net.run(3.0)
    assert done[0] - 1.0 > 50 * DISK_SECONDS[0]
    assert disk.slowness == 100.0
    calm, slow = stored_at(came_right()), stored_at(came_right("3.000 slowdisk b for 6.000 by 99.000"))
    assert len([at for at in slow if at < 9.0]) < len([at for at in calm if at < 9.0]) / 2


def test_nodb_one_node_works_on_without_its_database_and_the_others_with_it() -> None:
    site = CATALOGUE["site"]
    _, calm = lived(site)
    first = next(n for n in calm if n.kind == "does" and n.who.startswith("relay/") and n.text.startswith("leads"))
    verdict, notes = lived(site, f"3.000 nodb {first.who} for 14.000")
    assert verdict.failures == ()
    leads = [n for n in notes if n.kind == "does" and n.who.startswith("relay/") and n.text.startswith("leads")]
    assert [n.who == first.who for n in leads[:3]] == [True, True, False], "it stops by its own clock; then another leads"


def test_several_at_once() -> None:
    notes = came_right(
        "4.000 crash b for 2.000", "4.000 stall a for 3.000", "4.000 cut a<>b for 2.500", "4.000 leap a by 30.000",
        "4.100 pause a for 2.000",
    )  # fmt: skip
    assert len({n.at for n in notes if n.kind == "fault"}) == 2
    assert times(frames(notes, "frame", "a", "b"), 4.0, 6.0) == []


def test_every_kind_of_fault_has_a_test() -> None:
    tests = " ".join(name for name in globals() if name.startswith("test_"))
    assert [kind for kind in KINDS if f"_{kind}_" not in tests] == []


# -- a history by hand


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("1.000 melt a for 1.000", "there is no fault 'melt'"),
        ("1.000 crash a>b for 1.000", f"its subject is not {Subject.HOST}"),
        ("1.000 cut a for 1.000", f"its subject is not {Subject.LINK}"),
        ("1.000 crash z for 1.000", "z is not in this universe"),
        ("1.000 write a status>z", "z is not in this universe"),
    ],
)
def test_a_history_that_cannot_be_run_is_refused_with_the_reason(line: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        run_history(PAIR, history(PAIR, line))


def test_a_fault_that_finds_nothing_to_strike_does_nothing() -> None:
    verdict, notes = lived(CHAIN, "3.000 crash hub for 4.000", "4.000 crash hub for 1.000", "4.000 pause hub for 9.000")
    assert verdict.failures == ()
    assert times(told(notes, "crash", "hub")) == [3.0]
    assert times(told(notes, "start", "hub")) == [0.0, 7.0]
