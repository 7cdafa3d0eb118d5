"""What the API knows of a node: what can be asked of it, and what can be put in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from trunkline.api.bridgeview import BridgeView
from trunkline.api.queuesview import QueuesView
from trunkline.api.routesview import RoutesView
from trunkline.api.storeview import StoreView
from trunkline.core.health import Check


class NodeView(Protocol):
    """All of these may block, and may raise `TrunklineError`."""

    def inject(self, payload: Any, metadata: dict[str, str]) -> list[str]:
        """The ids of the routes that took the event; it is where they send it, or kept for another try, when this returns."""

    def status(self) -> dict[str, Any]: ...

    def topology(self) -> dict[str, Any]:
        """As `topologymodels.TopologyShown`."""

    def topology_table(self) -> dict[str, Any]:
        """As `topologymodels.TableShown`; `sites` and `missing` together are all sites that are known, this one included."""

    def topology_why(self, site: str) -> dict[str, Any] | None:
        """As `topologymodels.WhyShown`; None for a site that nobody told of, and for this one."""

    def trunk(self) -> dict[str, Any]:
        """As `topologymodels.TrunkShown`."""

    def routing(self) -> dict[str, Any]:
        """The numbers of the routing table, as `routesmetrics` shows them."""

    @property
    def store(self) -> StoreView: ...

    @property
    def queues(self) -> QueuesView: ...

    @property
    def bridge(self) -> BridgeView: ...

    @property
    def routes(self) -> RoutesView: ...

    def checks(self) -> Sequence[Check]:
        """The node is ready when each of these is ok."""
