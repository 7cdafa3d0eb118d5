"""G1 on the queues: writer, stamper and receiver are killed at random points, over and over."""

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

from waiting import eventually

SCRIPT = Path(__file__).with_name("killed_process.py")
ROLES = ("write", "stamp", "carry")
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


def progress(site: Site) -> list[int]:
    """What each role has done so far."""
    return site.ask(
        "SELECT count(*) FROM account UNION ALL SELECT head FROM queues.stamper UNION ALL SELECT count(*) FROM queues.receive"
    )


def wait_for_progress(site: Site) -> None:
    before = progress(site)
    eventually(lambda: all(now > then for now, then in zip(progress(site), before, strict=True)))


def kill_and_compare(site: Site, kills: int, rng: random.Random) -> None:
    site.do("CREATE TABLE account (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, value text)")
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
    assert all(len(list(messages)) == 7 for _, messages in groupby(log, key=lambda value: value.rsplit(" ", 1)[0]))
    positions = site.ask("SELECT position FROM queues.receive ORDER BY position")
    assert positions == list(range(1, len(received) + 1))


def test_g1_committed_messages_survive_kill_of_writer_stamper_and_receiver(site: Site) -> None:
    kill_and_compare(site, 10, random.Random())


@pytest.mark.soak
def test_g1_committed_messages_survive_200_kills(site: Site) -> None:
    kill_and_compare(site, 200, random.Random())
