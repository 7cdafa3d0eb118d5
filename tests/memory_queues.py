"""The queues of a site as plain values: what the API's description shows as its examples."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from trunkline.api import queuesmodels as models
from trunkline.queues.inspect import NoSuchQueue


class MemoryQueues:
    def __init__(self) -> None:
        self.queues: dict[str, Any] = deepcopy(models.QUEUES)
        self.sessions: dict[str, Any] = deepcopy(models.SESSIONS)
        self.asked: list[tuple[Any, ...]] = []

    def listing(self) -> dict[str, Any]:
        return self.queues

    def status(self) -> dict[str, Any]:
        return self.sessions

    def numbers(self) -> dict[str, Any]:
        return self.queues | self.sessions

    def entries(self, name: str, after: int | None, most: int, shown: int) -> dict[str, Any]:
        self.asked.append(("entries", name, after, most, shown))
        if name != models.ENTRIES["name"]:
            raise NoSuchQueue(name, [str(models.ENTRIES["name"])])
        return deepcopy(models.ENTRIES)

    def sync(self, site: str | None, client: str | None) -> dict[str, Any]:
        self.asked.append(("sync", site, client))
        return deepcopy(models.SYNC)
