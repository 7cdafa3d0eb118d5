"""Work on many routes goes to a thread: the event loop carries events too, and would stand still meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

MANY = 1_000

P = ParamSpec("P")
T = TypeVar("T")


async def apart(number: int, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """`number` of routes that it is about; for a few a thread would cost more than the work."""
    return await asyncio.to_thread(work, *args, **named) if number > MANY else work(*args, **named)
