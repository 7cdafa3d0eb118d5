"""A priority queue whose members may change their rank or leave, each in logarithmic time."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")
R = TypeVar("R")


class Ranked(Generic[K, R]):
    """Ranks and keys must be comparable. What left stays in the heap until it comes up, or until half of it is such."""

    def __init__(self) -> None:
        self._ranks: dict[K, R] = {}
        self._heap: list[tuple[R, K]] = []

    def __contains__(self, key: K) -> bool:
        return key in self._ranks

    def put(self, key: K, rank: R) -> None:
        if self._ranks.get(key) == rank:
            return
        self._ranks[key] = rank
        heapq.heappush(self._heap, (rank, key))
        if len(self._heap) > 2 * len(self._ranks) + 16:
            self._heap = [(rank, key) for key, rank in self._ranks.items()]
            heapq.heapify(self._heap)

    def discard(self, key: K) -> None:
        self._ranks.pop(key, None)

    def first(self) -> tuple[R, K] | None:
        heap, ranks = self._heap, self._ranks
        while heap and ranks.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0] if heap else None
