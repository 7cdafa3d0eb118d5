"""What the API knows of the site's routing table. Any node of the site can be asked: all of them hold it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from trunkline.routes.keys import Tenant
from trunkline.routes.operating import RoutesOperating
from trunkline.routes.storage.base import TenantConfig

_T = TypeVar("_T")


class RoutesView(Protocol):
    """`trunkline.routes.asked.RoutesAsked` is one."""

    def begun(self, question: Callable[[RoutesOperating], Awaitable[_T]]) -> Future[_T]:
        """The question runs on the node's event loop; never blocks. Both this and the answer may raise `TrunklineError`."""

    def tenant(self, tenant: Tenant) -> TenantConfig | None:
        """As this node knows it; never blocks."""
