"""Whom the commands ask about a bridge: the hub's database, or the API of one of its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trunkline.cli.queues.place import OR_URL, Api, connected, database, encoded

if TYPE_CHECKING:
    from trunkline.api.bridgeview import BridgeView


class OverApi(Api):
    """A node's API, asked for the same things."""

    def __init__(self, url: str | None, token: str | None) -> None:
        super().__init__("bridge", url, token)

    def status(self, type_: str | None, after: str, most: int) -> dict[str, Any]:
        return self._ask("GET", "/status", type=type_, after=after or None, limit=most)

    def site(self, name: str, type_: str | None) -> dict[str, Any]:
        return self._ask("GET", f"/sites/{encoded(name)}", type=type_)

    def offsets(self) -> dict[str, Any]:
        return self._ask("GET", "/offsets")

    def types(self) -> dict[str, Any]:
        return self._ask("GET", "/types")

    def numbers(self) -> dict[str, Any]:
        return dict(self.status(None, "", 1)["summary"])

    def quarantine(self, site: str | None, settled: bool, before: int, most: int) -> dict[str, Any]:
        return self._ask("GET", "/quarantine", site=site, settled=settled, before=before, limit=most)

    def quarantined(self, id: int, shown: int) -> dict[str, Any]:
        return self._ask("GET", f"/quarantine/{id}", bytes=shown)

    def retry(self, id: int) -> dict[str, Any]:
        return self._ask("POST", f"/quarantine/{id}")

    def drop(self, id: int) -> dict[str, Any]:
        return self._ask("DELETE", f"/quarantine/{id}")

    def resync(self, site: str, type_: str | None) -> dict[str, Any]:
        return self._ask("POST", "/resync", {"site": site} | ({} if type_ is None else {"type": type_}))

    def forget(self, site: str, force: bool) -> dict[str, Any]:
        return self._ask("DELETE", f"/sites/{encoded(site)}", force=force)


def asked(config: Path | None, dsn: str | None, url: str | None, token: str | None) -> BridgeView:
    """What is named first wins: --config, --dsn, --url or its variable, the variable of the database."""
    from trunkline.bridge.operating import BridgeOperating, types_of

    if config is None and dsn is None and url:
        return OverApi(url, token)
    place, loaded = database("bridge", config, dsn, or_else=OR_URL)
    return BridgeOperating(lambda: connected(place), types_of(loaded.bridge if loaded else None))
