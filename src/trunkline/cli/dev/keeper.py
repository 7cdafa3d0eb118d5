"""The keeper: a process that holds one service after the command that brought it up has ended.

The service is its child, so the kernel ends the service should the keeper be killed. On standard output it tells who
it is, then how the start went, and closes it; from then on it only writes its record.

1. A folder has one keeper at a time: it holds a lock for its life.
2. Told to end (SIGTERM), it stops its service first. When the service ends by itself, it writes down why, and ends.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

import msgspec

from trunkline.cli.dev.child import last_lines
from trunkline.cli.dev.identity import Process
from trunkline.cli.dev.record import Record, State
from trunkline.cli.dev.services import KINDS, Service
from trunkline.core.errors import TrunklineError

LOCK = "keeper.lock"


def keep(name: str, folder: Path, out: TextIO) -> None:
    own = Process.of(os.getpid())
    assert own is not None
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit("another process keeps this folder")
        out.write(f"{own.pid}\n")
        out.flush()
        service = KINDS[name].make(folder)
        _keep(service, Record(State.STARTING, own, log=str(service.log)), folder)


def _keep(service: Service, record: Record, folder: Path) -> None:
    last = msgspec.structs.replace(record, state=State.STOPPED, reason="it was told to, and what it stored is kept")
    signal.signal(signal.SIGTERM, _told_to_end)
    try:
        record.write(folder)
        began = time.monotonic()
        service.start()
        assert service.pid is not None
        running = msgspec.structs.replace(
            record,
            state=State.RUNNING,
            server=Process.of(service.pid),
            address=service.address,
            seconds=time.monotonic() - began,
        )
        running.write(folder)
        _tell_no_more()
        _wait_for_the_end_of(service.pid)
        last = msgspec.structs.replace(running, state=State.DEAD, reason=_last_words(service))
    except Exception as error:
        why = f"{error.what}: {error.why}" if isinstance(error, TrunklineError) else repr(error)
        last = msgspec.structs.replace(record, state=State.FAILED, reason=why)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        service.stop()
        last.write(folder)


def _told_to_end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def _tell_no_more() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def _wait_for_the_end_of(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([handle], [], [])
    finally:
        os.close(handle)


def _last_words(service: Service) -> str:
    return f"it ended by itself; its last words: {last_lines(service.log.read_text(errors='replace'))}"


if __name__ == "__main__":
    keep(sys.argv[1], Path(sys.argv[2]), sys.stdout)
