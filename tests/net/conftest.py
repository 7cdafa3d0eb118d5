from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from netfleet import Fleet


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """After the test nothing may be left running."""
    fleet = Fleet(tmp_path)
    yield fleet
    await fleet.close()
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left
