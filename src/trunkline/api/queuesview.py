"""What the API knows of a site's queues; any node of the site can be asked, for the database has it all."""

from __future__ import annotations

from typing import Any, Protocol


class QueuesView(Protocol):
    """All of these may block, and may raise `TrunklineError`; `NoSuchQueue` for an unknown name."""

    def listing(self) -> dict[str, Any]:
        """As `queuesmodels.QueuesShown`."""

    def status(self) -> dict[str, Any]:
        """As `queuesmodels.SessionsShown`."""

    def numbers(self) -> dict[str, Any]:
        """Both in one look."""

    def entries(self, name: str, after: int | None, most: int, shown: int) -> dict[str, Any]:
        """As `queuesmodels.EntriesShown`; `shown` bytes of each payload."""

    def sync(self, site: str | None, client: str | None) -> dict[str, Any]:
        """As `queuesmodels.SyncShown`; no site: for all, no client: of all that have a provider."""
