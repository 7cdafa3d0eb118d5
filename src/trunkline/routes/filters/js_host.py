"""Scripts are run by another process, which is killed when one event takes it too long: see js_engine for why, and its rules.

K1  There is an engine for each thread that runs scripts, started when it is first needed; it ends with its thread.
K2  An event is given `seconds` of real time, less a margin so that it is cut off by then. The engine's own limit is tighter:
    what can be interrupted is cut off there, anything else here. Time in which this process was stopped does not count.
K3  Whoever was being run when the engine was killed or broke down is blamed, alone: all others are run again.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgspec

from trunkline.core.errors import Retryable
from trunkline.core.jsoncodec import dumps, loads
from trunkline.routes.filters import js_engine

START_SECONDS, CHECK_SECONDS = 60.0, 10.0
LOOK_MS = 10
OWN_LIMIT, OUR_LIMIT = 0.6, 0.8  # parts of the limit
LONGEST_LOOK = 0.3  # seconds
PIECE = 1 << 18

TOO_LONG = b'E"it took longer than it may"'
BROKE_DOWN = b'E"the script engine broke down"'


class Script(msgspec.Struct, frozen=True):
    """`key`: whose context it runs in."""

    key: int
    source: str
    seconds: float
    bytes: int


class _Answered(msgspec.Struct, frozen=True):
    """`lines`: fewer than asked for if the engine did not survive; `blamed` is then the number of the event that it died of."""

    lines: list[bytes]
    blamed: int
    why: bytes = b""


def _program() -> tuple[str, ...]:
    """Its file or, where the package is in a zip, its text."""
    if os.path.exists(js_engine.__file__):
        return (js_engine.__file__,)
    return "-c", resources.files("trunkline.routes.filters").joinpath("js_engine.py").read_text()


class Engine:
    """One child process. `pid`: whose child it is."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        ours, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as shared, theirs:
            shared.truncate(js_engine.BEGUN_BYTES)
            self._begun = mmap.mmap(shared.fileno(), js_engine.BEGUN_BYTES)
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-S", *_program(), str(shared.fileno())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=(shared.fileno(),),
                start_new_session=True,
            )
        self._socket = ours
        self.end = weakref.finalize(self, _end, self.pid, self.process, ours)
        ours.setblocking(False)
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)
        if self.exchange(b"", 1, START_SECONDS).lines != [js_engine.READY.strip()]:
            raise Retryable("script engine", "it does not start", "see whether Python and the package quickjs are whole")

    def exchange(self, request: bytes, count: int, seconds: float) -> _Answered:
        """Sends it all while answers come; gives up when no further event has begun for so long."""
        self._begun[:] = bytes(js_engine.BEGUN_BYTES)
        unsent, answers, missing = memoryview(request), bytearray(), count
        begun, waited, now = 0, 0.0, time.monotonic()
        while missing > 0:
            readable, writable = self._ready(bool(unsent))
            if writable:
                unsent = unsent[self._send(unsent[:PIECE]) :]
            if readable:
                piece = self._receive()
                if not piece:
                    return self._lost(answers, BROKE_DOWN)
                answers += piece
                missing -= piece.count(b"\n")
            last, now, before, begun = now, time.monotonic(), begun, self.begun()
            waited = waited + min(now - last, LONGEST_LOOK) if begun == before else 0.0
            if missing > 0 and waited > seconds:
                return self._lost(answers, TOO_LONG)
        return _Answered(_lines(answers), -1)

    def _ready(self, writing: bool) -> tuple[bool, bool]:
        self._poll.modify(self._socket, select.POLLIN | (select.POLLOUT if writing else 0))
        found = next((what for _, what in self._poll.poll(LOOK_MS)), 0)
        return bool(found & ~select.POLLOUT), bool(found & select.POLLOUT)

    def _send(self, piece: memoryview) -> int:
        try:
            return self._socket.send(piece)
        except (BlockingIOError, ConnectionError):
            return 0

    def _receive(self) -> bytes:
        """Nothing: the other side is gone."""
        try:
            return self._socket.recv(PIECE)
        except ConnectionError:
            return b""

    def begun(self) -> int:
        """How many events of the latest request."""
        return int.from_bytes(self._begun[:], "little")

    def _lost(self, answers: bytearray, why: bytes) -> _Answered:
        self.end()
        lines = _lines(answers)
        return _Answered(lines, max(self.begun() - 1, len(lines)), why)


def _lines(answers: bytearray) -> list[bytes]:
    return bytes(answers).split(b"\n")[:-1]


def _end(owner: int, process: subprocess.Popen[bytes], link: socket.socket) -> None:
    """A forked process has inherited the handle, but not the engine."""
    link.close()
    if os.getpid() == owner:
        process.kill()
        process.wait()


_of_this_thread = threading.local()


def engine_of_this_thread() -> Engine:
    engine: Engine | None = getattr(_of_this_thread, "engine", None)
    if engine is None or not engine.end.alive or engine.pid != os.getpid():
        engine = _of_this_thread.engine = Engine()
    return engine


def run(script: Script, events: Sequence[bytes], now: float) -> list[bytes]:
    """An answer for each, which is JSON of payload and metadata; as the engine gives them."""
    answers: dict[int, bytes] = {}
    todo = list(range(len(events)))
    while todo:
        request = b"".join([_head(script, now, len(todo)), *[events[n] + b"\n" for n in todo]])
        answered = engine_of_this_thread().exchange(request, len(todo), script.seconds * OUR_LIMIT)
        done = len(answered.lines)
        answers.update(zip(todo, answered.lines, strict=False))
        if done == len(todo):
            break
        answers[todo[answered.blamed]] = answered.why
        todo = todo[done : answered.blamed] + todo[answered.blamed + 1 :]
    return [answers[n] for n in range(len(events))]


def check(script: Script) -> str:
    """Why it cannot be used; empty if it can."""
    answered = engine_of_this_thread().exchange(_head(script, 0.0, 0), 1, CHECK_SECONDS)
    return str(loads(answered.lines[0] if answered.lines else answered.why[1:]))


def _head(script: Script, now: float, count: int) -> bytes:
    asked: dict[str, Any] = {"key": script.key, "source": script.source, "seconds": script.seconds * OWN_LIMIT}
    return dumps({**asked, "bytes": script.bytes, "now": round(now * 1_000), "count": count}) + b"\n"
