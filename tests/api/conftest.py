from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from memory_node import MemoryNode, client_over


@pytest.fixture
def node() -> MemoryNode:
    return MemoryNode()


@pytest.fixture
async def client(node: MemoryNode) -> AsyncIterator[httpx.AsyncClient]:
    async with client_over(node) as client:
        yield client
