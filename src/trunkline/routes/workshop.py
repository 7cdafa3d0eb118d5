"""What is needed to make a running route of a written one: plugins, secrets, and what stands around it.

References to secrets are followed for the route's own tenant. What cannot be followed, or not compiled, is told at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from trunkline.core.errors import Invalid
from trunkline.core.mistakes import Mistake, Mistakes
from trunkline.routes.compile import NOWHERE, CompiledRoute, compile_route
from trunkline.routes.compiling import Compiling
from trunkline.routes.plugin import Around
from trunkline.routes.registry import Registry
from trunkline.routes.route import PluginUse, Route
from trunkline.routes.secrets import Sections, TenantSecrets

_Use = TypeVar("_Use", bound=PluginUse)


@dataclass(frozen=True)
class Workshop:
    """`secrets`: those that count now."""

    plugins: Registry
    around: Around = NOWHERE
    secrets: Callable[[], Sections] = dict

    @cached_property
    def compiling(self) -> Compiling:
        return Compiling(self.plugins)

    def compiled(self, route: Route) -> CompiledRoute:
        """For trying it out: what it was told is in it, secrets too."""
        return compile_route(self.followed(route), self.around, self.plugins)

    def followed(self, route: Route) -> Route:
        secrets, wrong = TenantSecrets(route.key.tenant, self.secrets()), list[Mistake]()

        def follow(place: str, use: _Use) -> _Use:
            try:
                config = secrets.resolved(use.config) if use.config is not None else None
            except Invalid as error:
                wrong.append(Mistake("", None, f"{place}.config", error.why, error.next_step))
                return use
            return use if config is use.config else use.model_copy(update={"config": config})

        receiver, sender = follow("receiver", route.receiver), follow("sender", route.sender)
        chain = tuple(follow(f"filterChain[{n}]", use) for n, use in enumerate(route.filter_chain))
        if wrong:
            raise Mistakes(f"route {route.id}", wrong, "set these secrets in the site's configuration, or name others")
        return route.model_copy(update={"receiver": receiver, "filter_chain": chain, "sender": sender})
