"""What the API knows of a hub's bridge; any node of the hub can be asked, for the database has it all."""

from __future__ import annotations

from typing import Any, Protocol


class BridgeView(Protocol):
    """All of these may block, and may raise `TrunklineError`: `NoBridge` at a site that is no hub, `NoSuchSite` and
    `NoSuchBundle` for what is unknown. The answers are as `bridgemodels` has them."""

    def status(self, type_: str | None, after: str, most: int) -> dict[str, Any]:
        """As `BridgeShown`; sites whose names come after that one."""

    def site(self, name: str, type_: str | None) -> dict[str, Any]:
        """As `SiteShown`."""

    def offsets(self) -> dict[str, Any]:
        """As `OffsetsShown`."""

    def types(self) -> dict[str, Any]:
        """As `TypesShown`."""

    def numbers(self) -> dict[str, Any]:
        """For metrics; empty where there is no bridge."""

    def quarantine(self, site: str | None, settled: bool, before: int, most: int) -> dict[str, Any]:
        """As `QuarantineShown`, the newest first; ids below `before`."""

    def quarantined(self, id: int, shown: int) -> dict[str, Any]:
        """As `QuarantinedShown`; `shown` bytes of its payload."""

    def retry(self, id: int) -> dict[str, Any]:
        """As `SettledShown`."""

    def drop(self, id: int) -> dict[str, Any]:
        """As `SettledShown`."""

    def resync(self, site: str, type_: str | None) -> dict[str, Any]:
        """As `ResyncShown`; no type: of all that the site sends."""

    def forget(self, site: str, force: bool) -> dict[str, Any]:
        """As `ForgottenShown`; `force`: even though bundles of it come."""
