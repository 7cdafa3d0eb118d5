"""A stop ends: the limit and the second word cut it short, and say what did not stop."""

from __future__ import annotations

import threading
from typing import Any

from structlog.testing import capture_logs

from trunkline.node.stopping import CUT_SHORT, Stopping
from waiting import eventually


async def test_asked_once_it_only_says_so() -> None:
    left: list[int] = []
    stopping = Stopping(300, left.append)
    assert not stopping.asked.is_set()
    stopping.ask("told so")
    assert stopping.asked.is_set()
    assert left == []
    end_limit()


async def test_the_second_word_cuts_it_short_and_names_what_did_not_stop() -> None:
    left: list[int] = []
    stopping = Stopping(300, left.append)
    with capture_logs() as said, stopping.waits_for("requests of the API"), stopping.waits_for("links"):
        stopping.ask("SIGTERM")
        with stopping.waits_for("what is done already"):
            pass
        stopping.ask("SIGTERM")
    assert left == [CUT_SHORT]
    assert said[-1]["event"] == "stop cut short"
    assert said[-1]["not_stopped"] == "requests of the API, links"
    end_limit()


async def test_the_limit_cuts_it_short_though_the_loop_hangs() -> None:
    left: list[int] = []
    stopping = Stopping(0.05, left.append)
    with capture_logs() as said, stopping.waits_for("links"):
        stopping.ask("SIGTERM")
        eventually(lambda: left == [CUT_SHORT], 20)
    assert said[-1]["reason"] == "it took longer than 0.05 s"


def end_limit() -> None:
    timers: list[Any] = [thread for thread in threading.enumerate() if thread.name == "stop-limit"]
    assert timers
    for timer in timers:
        timer.cancel()
        timer.join(20)
