"""G1 on the queues: writer, stamper, receiver and listener are killed at random points, over and over."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, groupby
from pathlib import Path

import pytest
from queue_site import Site

from trunkline.core.ids import START, Position
from trunkline.queues.consumers import attach
from trunkline.queues.receive import PostgresSink
from trunkline.trunk.log import Entry
from waiting import eventually

LOG = "5f0c1f0e-0000-4000-8000-000000000001"
SCRIPT = Path(__file__).with_name("killed_process.py")
ROLES = ("write", "stamp", "carry", "keep")
_lives = count(1)


def start(site: Site, role: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(SCRIPT), role, site.dsn, str(next(_lives))])


def kill(process: subprocess.Popen[bytes]) -> None:
    assert process.poll() is None, "it ended by itself"
    process.kill()
    process.wait(20)


@contextmanager
def running(site: Site) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    processes = {role: start(site, role) for role in ROLES}
    try:
        yield processes
    finally:
        for process in processes.values():
            process.kill()
            process.wait(20)


PROGRESS = """
SELECT count(*) FROM account UNION ALL SELECT coalesce(max(last_seq), 0) FROM queues.stamp
UNION ALL SELECT count(*) FROM queues.receive UNION ALL SELECT count(*) FROM kept
"""
TABLES = """
CREATE TABLE account (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value text);
CREATE TABLE kept (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message text, value text);
CREATE TABLE told (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, message text, value text);
"""


def progress(site: Site) -> list[int]:
    """What each role has done so far."""
    return site.ask(PROGRESS)


def wait_for_progress(site: Site) -> None:
    before = progress(site)
    eventually(lambda: all(now > then for now, then in zip(progress(site), before, strict=True)))


def kill_and_compare(site: Site, kills: int, rng: random.Random) -> None:
    site.do(TABLES)
    with running(site) as processes:
        for n in range(kills):
            role = ROLES[n % len(ROLES)]
            wait_for_progress(site)
            threading.Event().wait(rng.uniform(0, 0.05))  # the random point
            kill(processes[role])
            processes[role] = start(site, role)
        kill(processes["write"])
        eventually(lambda: len(set(progress(site))) == 1)
    check(site)


def check(site: Site) -> None:
    committed = site.ask("SELECT value FROM account ORDER BY id")
    log = [payload.decode() for payload in site.logged()]
    received = [payload.decode() for payload in site.ask("SELECT payload FROM queues.receive ORDER BY position")]
    assert log == committed  # one writer at a time, so its order is the order of commits
    assert received == log
    assert site.ask("SELECT value FROM kept ORDER BY id") == log
    messages = site.ask("SELECT message FROM kept ORDER BY id")
    assert messages == [f"leaf/{seq}/0" for seq in range(1, len(log) + 1)]
    assert all(len(list(messages)) == 7 for _, messages in groupby(log, key=lambda value: value.rsplit(" ", 1)[0]))
    positions = site.ask("SELECT position FROM queues.receive ORDER BY position")
    assert positions == list(range(1, len(received) + 1))


def test_g1_committed_messages_survive_kill_of_writer_stamper_receiver_and_listener(site: Site) -> None:
    kill_and_compare(site, 10, random.Random())


@pytest.mark.soak
def test_g1_committed_messages_survive_200_kills(site: Site) -> None:
    kill_and_compare(site, 200, random.Random())


LISTENS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'trunkline-listener-teller' AND wait_event_type = 'Lock'"
)


def test_s23_a_batch_whose_position_had_not_moved_comes_again_with_the_same_message_ids(site: Site) -> None:
    """The process dies between the application's success and the position's move, which a lock holds up until then."""
    site.do(TABLES)
    sink = PostgresSink(site.pool(), site.acquire())
    sink.use_log("leaf", "app", LOG, START)
    sink.applied("leaf")
    sink.append("leaf", LOG, [Entry(seq, "app", (), {}, b"%d" % seq) for seq in range(1, 6)], Position(5, 1), ["app"])
    holder = site.connect()
    attach(holder, "app", "teller")
    holder.commit()
    holder.execute("SELECT FROM queues.consumed FOR UPDATE")
    process = start(site, "tell")
    try:
        eventually(lambda: site.ask(LISTENS) == [1])
    finally:
        kill(process)
    assert site.ask("SELECT value FROM told ORDER BY id") == ["1", "2", "3", "4", "5"]
    holder.rollback()
    process = start(site, "tell")
    try:
        eventually(lambda: site.ask("SELECT position FROM queues.consumed") == [5])
    finally:
        kill(process)
    ids = [f"leaf/{seq}/0" for seq in range(1, 6)]
    assert site.ask("SELECT message FROM told ORDER BY id") == ids + ids
