"""A node is asked from any thread, also before it runs, and while its loop is held up."""

from __future__ import annotations

import asyncio
import threading

import pytest

from trunkline.core.errors import Retryable
from trunkline.node import views


def test_a_node_that_does_not_run_yet_says_to_ask_again() -> None:
    with pytest.raises(Retryable, match="it does not run"):
        views.OnLoop()(lambda: 1)


async def test_a_loop_that_is_held_up_says_to_ask_again_and_forgets_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "ANSWER_SECONDS", 0.05)
    on_loop, asked, gave_up = views.OnLoop(), [], threading.Event()
    on_loop.begin()

    def ask() -> None:
        try:
            with pytest.raises(Retryable, match=r"no answer within 0\.05 s"):
                on_loop(lambda: asked.append("late"))
        finally:
            gave_up.set()

    asking = asyncio.create_task(asyncio.to_thread(ask))
    await asyncio.sleep(0)  # the thread begins; this loop answers nothing before it has given up
    assert gave_up.wait(10)
    await asking
    assert asked == []
    assert await asyncio.to_thread(on_loop, lambda: "here") == "here"
