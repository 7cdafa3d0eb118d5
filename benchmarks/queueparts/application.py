"""The application: a process of its own that commits transactions with `transmit_many`, or single `transmit`s at a rate."""

from __future__ import annotations

import os
import struct
import threading
import time
from array import array
from pathlib import Path

import psycopg

from queueparts.pace import Pace
from queueparts.sites import CLIENT
from trunkline.queues.client import QueueClient

_APP = QueueClient(CLIENT)
NUMBER = struct.Struct(">q")
"""The number of an entry, at the beginning of its payload."""


def send_batches(dsn: str, destinations: list[str], size: int, batch: int, threads: int, pace: Pace, rate: float) -> None:
    """As fast as it goes, or at `rate` entries per second when that is not 0."""
    lock = threading.Lock()

    def send() -> None:
        payloads = [os.urandom(size) for _ in range(batch)]
        due, step = time.monotonic(), batch * threads / rate if rate else 0.0
        with psycopg.connect(dsn) as conn:
            while pace.wait():
                due += step
                time.sleep(max(0.0, due - time.monotonic()) if rate else 0.0)
                _APP.transmit_many(conn, payloads, destinations)
                conn.commit()
                with lock:
                    pace.sent.value += batch

    _all(send, threads)


def send_singles(dsn: str, destinations: list[str], size: int, rate: float, threads: int, pace: Pace, file: Path) -> None:
    """One transaction each; writes for every entry when its commit was acknowledged, in nanoseconds of the machine's clock."""
    committed: list[array[int]] = [array("q") for _ in range(threads)]

    def send(nth: int) -> None:
        filling, due, step, number = os.urandom(size - NUMBER.size), time.monotonic(), threads / rate, nth
        with psycopg.connect(dsn) as conn:
            while not pace.ended.value:
                due += step
                time.sleep(max(0.0, due - time.monotonic()))
                _APP.transmit(conn, NUMBER.pack(number) + filling, destinations)
                conn.commit()
                committed[nth].extend((number, time.monotonic_ns()))
                number += threads

    _all(send, threads, numbered=True)
    file.write_bytes(b"".join(part.tobytes() for part in committed))


def _all(work: object, threads: int, numbered: bool = False) -> None:
    running = [threading.Thread(target=work, args=(n,) if numbered else ()) for n in range(threads)]  # type: ignore[arg-type]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def read_committed(file: Path) -> dict[int, int]:
    words = array("q")
    words.frombytes(file.read_bytes())
    return dict(zip(words[::2], words[1::2], strict=True))
