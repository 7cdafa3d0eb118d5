"""The numbered scenarios that count most, on real sockets: one `trunkline node` process per site, with its own database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from siteprocesses import HEARTBEAT, Processes, Row, numbered, two_way

from trunkline.queues.slots import forget
from waiting import eventually

pytestmark = pytest.mark.timeout(240)


def direct(sites: str) -> set[Row]:
    return {(a, b, b, 1) for a in sites for b in sites if a != b}


@contextmanager
def joined(
    tmp: pytest.TempPathFactory, make: Callable[..., str], links: dict[str, list[str]], rows: set[Row], one_way: bool = False
) -> Iterator[Processes]:
    with Processes(tmp.mktemp("fleet"), make, links, one_way).running() as fleet:
        fleet.until_table(rows, 120)
        fleet.meet(rows)
        yield fleet


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]) -> Iterator[Processes]:
    with joined(tmp_path_factory, make_databases, two_way("ba", "ca", "cb"), direct("abc")) as fleet:
        yield fleet


def all_write(fleet: Processes, sites: str, count: int) -> None:
    """Each of them writes; every other one has it all, once, and was sent no more."""
    fleet.until_quiet()
    before = {site: fleet.counted(site) for site in sites}
    had = {(site, other): len(fleet.received(site, other)) for site in sites for other in sites}
    for site in sites:
        fleet.write(site, numbered(f"all {site}", count))
    for site in sites:
        for other in sites.replace(site, ""):
            eventually(lambda s=site, o=other: len(fleet.received(s, o)) == had[s, o] + count, 60, fleet.fleet.logs)
            assert fleet.received(site, other)[had[site, other] :] == numbered(f"all {other}", count)
        assert fleet.gained(site, before[site]) == {"received": count * (len(sites) - 1), "duplicate": 0, "stray": 0}


def test_s01_a_chain_of_followers_has_exactly_three_rows(
    tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]
) -> None:
    rows = {("b", "a", "a", 1), ("c", "b", "b", 1), ("c", "a", "b", 2)}
    with joined(tmp_path_factory, make_databases, {"a": [], "b": ["a"], "c": ["b"]}, rows, one_way=True) as fleet:
        fleet.write("a", numbered("a", 100))
        fleet.until_received("c", "a", numbered("a", 100))
        assert fleet.counted("b")["received"] == fleet.counted("c")["received"] == 100
        assert fleet.counted("a")["received"] == 0
        assert fleet.table() == rows


def test_s02_in_a_mesh_of_three_each_takes_two_thousand_records_once(mesh: Processes) -> None:
    mesh.until_table(direct("abc"))
    all_write(mesh, "abc", 1000)
    assert mesh.table() == direct("abc")


def test_s03_in_a_mesh_of_five_every_record_comes_once_and_its_bytes_too(
    tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]
) -> None:
    links = two_way("ba", "ca", "cb", "da", "db", "dc", "ea", "eb", "ec", "ed")
    with joined(tmp_path_factory, make_databases, links, direct("abcde")) as fleet:
        before = dict(fleet.wires.received)
        records = numbered("a", 20_000, 200)
        for first in range(0, len(records), 1000):
            fleet.write("a", records[first : first + 1000])
        for site in "bcde":
            fleet.until_received(site, "a", records, 90)
            assert fleet.counted(site) == {"received": 20_000, "duplicate": 0, "stray": 0}
            came = {way: n - before.get(way, 0) for way, n in fleet.wires.received.items() if way[1] == site}
            assert came["a", site] < 1.5 * 4_720_000
            assert sum(came.values()) - came["a", site] < 400_000  # heartbeats, the store, acknowledgements


def test_s04_in_a_chain_nothing_is_echoed(tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]) -> None:
    rows = {
        ("a", "b", "b", 1), ("a", "c", "b", 2), ("b", "a", "a", 1), ("b", "c", "c", 1), ("c", "b", "b", 1), ("c", "a", "b", 2),
    }  # fmt: skip
    with joined(tmp_path_factory, make_databases, two_way("ba", "cb"), rows) as fleet:
        fleet.write("a", numbered("a", 1000))
        fleet.until_received("b", "a", numbered("a", 1000))
        fleet.until_received("c", "a", numbered("a", 1000))
        for site in "bc":
            assert fleet.counted(site) == {"received": 1000, "duplicate": 0, "stray": 0}
        assert fleet.counted("a")["received"] == 0


def test_s05_in_a_one_way_ring_nobody_gets_its_own_records_back(
    tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]
) -> None:
    before = {"a": "dcb", "b": "adc", "c": "bad", "d": "cba"}
    rows = {(site, source, ring[0], depth) for site, ring in before.items() for depth, source in enumerate(ring, 1)}
    follows = {"a": ["d"], "b": ["a"], "c": ["b"], "d": ["c"]}
    with joined(tmp_path_factory, make_databases, follows, rows, one_way=True) as fleet:
        all_write(fleet, "abcd", 300)
        for site in "abcd":
            assert fleet.received(site, site) == []


def test_s21_in_a_star_the_hub_takes_each_record_once(
    tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]
) -> None:
    leaves = "bcde"
    rows = {(leaf, "a", "a", 1) for leaf in leaves} | {("a", leaf, leaf, 1) for leaf in leaves}
    rows |= {(x, y, "a", 2) for x in leaves for y in leaves if x != y}
    with joined(tmp_path_factory, make_databases, two_way("ba", "ca", "da", "ea"), rows) as fleet:
        fleet.write("b", numbered("b", 1000))
        for site in "acde":
            fleet.until_received(site, "b", numbered("b", 1000))
            assert fleet.counted(site) == {"received": 1000, "duplicate": 0, "stray": 0}
        assert fleet.counted("b")["received"] == 0


DETOUR: set[Row] = (direct("abc") - {("a", "c", "c", 1), ("c", "a", "a", 1)}) | {("a", "c", "b", 2), ("c", "a", "b", 2)}


def moved(fleet: Processes, before: dict[str, int]) -> dict[str, int]:
    return {site: fleet.moves(site) - count for site, count in before.items()}


def test_s09_a_closed_link_moves_exactly_its_two_rows(mesh: Processes) -> None:
    mesh.until_table(direct("abc"))
    moves = {site: mesh.moves(site) for site in "abc"}
    with mesh.wires.cut("a", "c"):
        mesh.until_table(DETOUR)
        assert moved(mesh, moves) == {"a": 1, "b": 0, "c": 1}
        all_write(mesh, "abc", 100)


def test_s10_a_link_that_returns_under_load_is_taken_again_and_nothing_is_lost_or_doubled(mesh: Processes) -> None:
    mesh.until_table(direct("abc"))
    mesh.until_quiet()
    had = len(mesh.received("c", "a"))
    with mesh.load("a") as written:
        with mesh.wires.cut("a", "c"):
            mesh.until_table(DETOUR)
        before, moves = mesh.counted("c"), {site: mesh.moves(site) for site in "abc"}
        mesh.until_table(direct("abc"))
        assert moved(mesh, moves) == {"a": 1, "b": 0, "c": 1}
    eventually(lambda: len(mesh.received("c", "a")) >= had + len(written), 60, mesh.fleet.logs)
    assert mesh.received("c", "a")[had:] == written
    gained = mesh.gained("c", before)
    assert (gained["duplicate"], gained["stray"]) == (0, 0)


def trim(fleet: Processes, site: str) -> None:
    """As retention does it: everything that is stamped by now is gone."""
    with psycopg.connect(fleet.fleet.dsn[site]) as conn:
        forget(conn, 2**62)


def lost(fleet: Processes, site: str, origin: str) -> list[str]:
    query = """SELECT headers ->> 'trunkline-lost' FROM queues.receive JOIN queues.queue ON queue.id = receive.queue
                WHERE remote = %s AND headers ? 'trunkline-lost' ORDER BY position"""
    with psycopg.connect(fleet.fleet.dsn[site]) as conn:
        return [text for (text,) in conn.execute(query, (origin,))]


def test_s24_who_was_far_behind_gets_all_of_it_over_another_path_or_is_told_what_was_trimmed(
    tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]
) -> None:
    with joined(tmp_path_factory, make_databases, two_way("ba", "ca", "cb"), direct("abc")) as mesh:
        behind, missed = mesh.node("c"), numbered("missed", 10_000)
        behind.kill()
        for start in range(0, len(missed), 1000):
            mesh.write("a", missed[start : start + 1000])
        mesh.until_received("b", "a", missed)
        with mesh.wires.cut("a", "c"):
            behind.start()
            mesh.until_received("c", "a", missed, 90)
            assert lost(mesh, "c", "a") == []

            behind.kill()
            mesh.write("a", numbered("trimmed", 50))
            mesh.until_received("b", "a", [*missed, *numbered("trimmed", 50)])
            trim(mesh, "a")
            behind.start()
            eventually(lambda: lost(mesh, "c", "a") == ["10002-10051"], 90, mesh.fleet.logs)
            mesh.write("a", [b"after"])
            eventually(lambda: mesh.received("c", "a") == [*missed, b"", b"after"], 60, mesh.fleet.logs)


def test_s23_a_silent_link_is_left_within_four_heartbeats(mesh: Processes) -> None:
    mesh.until_table(direct("abc"))
    mesh.until_quiet()
    had = len(mesh.received("c", "a"))
    before = mesh.counted("c")
    with mesh.load("a") as written:
        eventually(lambda: len(mesh.received("c", "a")) > had, 30, mesh.fleet.logs)
        with mesh.wires.mute("a", "c"):
            begun = time.monotonic()
            eventually(lambda: ("c", "a", "b", 2) in mesh.table(), 30, mesh.fleet.logs)
            assert time.monotonic() - begun < 4 * HEARTBEAT + 2.0  # the table is asked of three busy processes
    eventually(lambda: len(mesh.received("c", "a")) >= had + len(written), 60, mesh.fleet.logs)
    assert mesh.received("c", "a")[had:] == written
    assert mesh.gained("c", before)["duplicate"] == 0
