"""The ways in which leadership could lose, repeat or starve (H02, H03, H04), and a stop under load: two nodes of site a
share one Postgres, site b is their neighbour; real processes with a short lease."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import psycopg
import pytest
from sitefleet import EVENTS, QUICK, Fleet, NodeProcess, batch, frozen, lease

from trunkline.db.embedded import EmbeddedPostgres
from trunkline.db.migrate import migrate
from waiting import eventually

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("two"), {"fsync": "off", "max_connections": "100"}) as server:
        migrate(server.dsn, "queues")
        yield server


@pytest.fixture(scope="module")
def fleet(
    server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory, make_databases: Callable[..., str]
) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), QUICK)
    fleet.add("a", ["n1", "n2"], server.dsn, links=["b"])
    fleet.add("b", ["n1"], make_databases("queues"))
    fleet.start()
    try:
        fleet.wait_whole()
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture(autouse=True)
def whole_again(fleet: Fleet) -> Iterator[None]:
    yield
    for node in fleet.nodes:
        if node.running.poll() is not None:
            node.wishes.clear()
            node.start()
    fleet.wait_whole()


def other(fleet: Fleet, node: NodeProcess) -> NodeProcess:
    return next(n for n in fleet.of(node.id.site) if n is not node)


def flows(fleet: Fleet, origin: str, site: str, name: str) -> None:
    before, payloads = len(fleet.received(site, origin)), batch(name)
    fleet.transmit(origin, payloads, site)
    eventually(lambda: fleet.received(site, origin)[before:] == payloads, why=fleet.logs)


def ask(dsn: str, query: str, *values: object) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn) as conn:
        cursor = conn.execute(query, values)
        return cursor.fetchall() if cursor.description else []


def test_h02_a_site_restored_from_a_backup_raises_its_epoch_above_what_its_neighbour_knows(fleet: Fleet) -> None:
    """The clock does not help here: the epoch that the neighbour remembers is ahead of it."""
    dsn, ahead = fleet.dsn["a"], max(int(time.time()) + 5000, lease(fleet.dsn["a"])[1])
    ask(dsn, "UPDATE site.lease SET epoch = %s, expires_at = '-infinity'", ahead)
    flows(fleet, "b", "a", "before the restore")
    remembered = "SELECT max(generation) FROM queues.acknowledged WHERE destination = 'a'"
    eventually(lambda: ask(fleet.dsn["b"], remembered)[0][0] == lease(dsn)[1] > ahead)
    for node in fleet.of("a"):
        node.kill()
    [(known,)] = ask(fleet.dsn["b"], remembered)
    assert isinstance(known, int)
    ask(dsn, "UPDATE site.lease SET epoch = 1000, expires_at = '-infinity'")
    for node in fleet.of("a"):
        node.start()
    eventually(lambda: lease(dsn)[1] > known, why=fleet.logs)
    assert any("a higher incarnation of this site is known" in node.log() for node in fleet.of("a"))
    fleet.wait_whole()
    flows(fleet, "b", "a", "after the restore")
    flows(fleet, "a", "b", "after the restore")
    _, epoch, _ = lease(dsn)
    assert fleet.leader("a").view("status")["incarnation"] == epoch
    eventually(lambda: ask(fleet.dsn["b"], remembered) == [(epoch,)])  # or its acknowledgements would be void for ever


def test_h03_a_leader_whose_database_does_not_answer_stops_acting_before_its_lease_can_lapse(
    fleet: Fleet, server: EmbeddedPostgres
) -> None:
    leader, neighbour = fleet.leader("a"), fleet.leader("b")
    assert [n["site"] for n in neighbour.view("topology")["neighbours"]] == ["a"]
    with frozen(server):
        begun = time.monotonic()
        eventually(lambda: leader.view("status").get("leads") is False, why=leader.log)
        assert time.monotonic() - begun < QUICK.seconds
        eventually(lambda: neighbour.view("topology")["neighbours"] == [])
        assert leader.get("/livez")[0] == 200
        assert leader.get("/readyz")[0] == 503
        assert not leader.check("lease")[0]
        eventually(lambda: leader.check("database")[1].startswith("no answer for"))
        assert not leader.check("database")[0]
    fleet.leader("a")
    flows(fleet, "b", "a", "thawed")


@contextmanager
def broken_for(dsn: str, node: NodeProcess) -> Iterator[None]:
    """Whatever this node does as a leader with arriving records fails, and not because a database is away."""
    ask(dsn, """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('application_name') = TG_ARGV[0] THEN RAISE EXCEPTION 'this node is broken'; END IF;
        RETURN NULL; END $$""")  # fmt: skip
    ask(dsn, f"""CREATE TRIGGER refuse AFTER INSERT OR UPDATE ON queues.session
                 FOR EACH STATEMENT EXECUTE FUNCTION refuse('trunkline-trunk-{node.id.node}')""")  # fmt: skip
    try:
        yield
    finally:
        ask(dsn, "DROP FUNCTION refuse CASCADE")


def test_h04_a_leader_whose_work_fails_leaves_the_lease_to_another(fleet: Fleet) -> None:
    broken = fleet.leader("a")
    healthy = other(fleet, broken)
    with broken_for(fleet.dsn["a"], broken):
        flows(fleet, "b", "a", "around the broken one")
        assert lease(fleet.dsn["a"])[0] == str(healthy.id)
        assert "this node is broken" in broken.check("task work")[1]
        eventually(lambda: broken.check("lease")[1].startswith(f"follows {healthy.id}"))
    assert broken.log().count("Traceback") == 1  # of three failures


class Load:
    """Events posted to a node from several threads, until it takes no more."""

    def __init__(self, node: NodeProcess) -> None:
        self.taken = 0
        self._api, self._lock = node.api(), threading.Lock()
        self._threads = [threading.Thread(target=self._post, args=(n,)) for n in range(4)]

    def _post(self, thread: int) -> None:
        with httpx.Client(base_url=f"http://{self._api}", timeout=10) as client:
            for n in range(10_000):
                try:
                    answer = client.post("/v1/event", json={"thread": thread, "n": n})
                except httpx.HTTPError:
                    return
                if answer.status_code == 200:
                    with self._lock:
                        self.taken += 1
                elif answer.status_code == 503:
                    return

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(30)


def test_told_to_stop_under_load_a_leader_ends_with_0_hands_over_at_once_and_keeps_what_it_took(fleet: Fleet) -> None:
    leader = fleet.leader("a")
    count = f"SELECT count(*) FROM queues.send_log WHERE client = '{EVENTS}'"
    [(before,)] = ask(fleet.dsn["a"], count)
    assert isinstance(before, int)
    with Load(leader) as load:
        eventually(lambda: load.taken > 50)
        leader.signal(signal.SIGTERM)
        assert leader.running.wait(20) == 0
        begun = time.monotonic()
        eventually(other(fleet, leader).leads)
        assert time.monotonic() - begun < QUICK.seconds / 2
    [(after,)] = ask(fleet.dsn["a"], count)
    assert isinstance(after, int)
    assert after - before >= load.taken  # one that was committed may have lost its answer
    eventually(lambda: len(fleet.received("b", "a", EVENTS)) == after)
    assert "Traceback" not in leader.log()[leader.log().rindex("stopping") :]
    assert not (leader.folder / "node.json").exists()


def test_a_stop_that_cannot_end_is_cut_short_by_its_limit_or_by_a_second_word(fleet: Fleet, server: EmbeddedPostgres) -> None:
    leader = fleet.leader("a")
    follower = other(fleet, leader)
    follower.signal(signal.SIGTERM)
    assert follower.running.wait(20) == 0
    follower.wishes = {"stop_seconds": 1.5}
    follower.start()
    eventually(lambda: follower.check("lease")[1].startswith("follows"))
    with frozen(server):
        eventually(lambda: not follower.check("database")[0])
        begun = time.monotonic()
        follower.signal(signal.SIGTERM)
        assert follower.running.wait(20) == 1
        assert 1 < time.monotonic() - begun < 8
        leader.signal(signal.SIGTERM)
        eventually(lambda: "stopping" in leader.log()[-2000:])
        leader.signal(signal.SIGTERM)
        assert leader.running.wait(20) == 1
    cut = [line for line in follower.log().splitlines() if "stop cut short" in line]
    assert "it took longer than 1.5 s" in cut[-1]
    assert "the leader's work and its lease" in cut[-1]
    assert "a second time" in leader.log().splitlines()[-1]
