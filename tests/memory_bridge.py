"""The bridge of a hub as plain values: what the API's description shows as its examples."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from trunkline.api import bridgemodels as models
from trunkline.bridge.inspect import NoSuchBundle, NoSuchSite


class MemoryBridge:
    """It has the site paris and the bundle 7."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def status(self, type_: str | None, after: str, most: int) -> dict[str, Any]:
        self.asked.append(("status", type_, after, most))
        return deepcopy(models.STATUS)

    def site(self, name: str, type_: str | None) -> dict[str, Any]:
        self._known(name)
        return deepcopy(models.SITE)

    def offsets(self) -> dict[str, Any]:
        return deepcopy(models.OFFSETS)

    def types(self) -> dict[str, Any]:
        return deepcopy(models.TYPES)

    def numbers(self) -> dict[str, Any]:
        staleness = [{"site": "paris", "seconds": 32.5}]
        counters = [{"site": "paris"} | models.COUNTERS]
        return models.STATUS["summary"] | {"counters": counters, "staleness": staleness, "staleness_max": 32.5}

    def quarantine(self, site: str | None, settled: bool, before: int, most: int) -> dict[str, Any]:
        self.asked.append(("quarantine", site, settled, before, most))
        return deepcopy(models.QUARANTINE)

    def quarantined(self, id: int, shown: int) -> dict[str, Any]:
        return deepcopy(self._of_bundle(id, models.QUARANTINED))

    def retry(self, id: int) -> dict[str, Any]:
        self.asked.append(("retry", id))
        return self._of_bundle(id, models.RETRIED)

    def drop(self, id: int) -> dict[str, Any]:
        self.asked.append(("drop", id))
        return self._of_bundle(id, models.DROPPED)

    def resync(self, site: str, type_: str | None) -> dict[str, Any]:
        self._known(site)
        self.asked.append(("resync", site, type_))
        return deepcopy(models.RESYNC)

    def forget(self, site: str, force: bool) -> dict[str, Any]:
        self._known(site)
        self.asked.append(("forget", site, force))
        return deepcopy(models.FORGOTTEN)

    def _known(self, site: str) -> None:
        if site != "paris":
            raise NoSuchSite(site)

    def _of_bundle(self, id: int, found: dict[str, Any]) -> dict[str, Any]:
        if id != 7:
            raise NoSuchBundle(id)
        return found
