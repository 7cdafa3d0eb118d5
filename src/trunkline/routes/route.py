"""A route: receiver → filter chain → sender, in the shape EARS users know.

What it *does* (`Behaviour`) is kept apart from what is *said* about it (`Notes`): ids with equal behaviour share one live
route, whatever is said about them. Keys may be written as in JSON (`filterChain`) or as in Python (`filter_chain`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from trunkline.core.scalars import Number
from trunkline.routes.canonical import content_hash, json_hash, names, plain
from trunkline.routes.chain import ErrorPolicy
from trunkline.routes.fields import Label, RouteId, RouteModel, TenantName
from trunkline.routes.keys import HOUSE, RouteKey, Tenant


class DeliveryMode(StrEnum):
    AT_LEAST_ONCE = "at_least_once"
    FIRE_AND_FORGET = "fire_and_forget"
    EFFECTIVELY_ONCE = "effectively_once"


SAME_MODES = {"": DeliveryMode.AT_LEAST_ONCE, "exactly_once": DeliveryMode.EFFECTIVELY_ONCE}


def _same(word: object) -> object:
    return SAME_MODES.get(word, word) if isinstance(word, str) else word


def _no_list(value: object) -> object:
    return () if value is None else value


class PluginUse(RouteModel):
    """A plugin, and what it is told."""

    plugin: str = Field(default="", examples=["nop"], description="its name; with fragmentName it may be left out")
    name: Label = Field(default="", description="equal plugins of a tenant are shared, unless they are given different names")
    config: Any = Field(default=None, description="what it is told; its keys are the plugin's")
    fragment_name: Label = Field(
        default="", description="a fragment of the tenant that gives plugin and config; a name written here stays"
    )


class FilterUse(PluginUse):
    """A filter, and what it is told."""

    on_error: ErrorPolicy = Field(
        default=ErrorPolicy.DEAD_LETTER,
        description="what becomes of an event that it cannot process: drop forgets it, dead_letter keeps it with the reason, "
        "fail gives it back to where it came from",
    )


class RouteTenant(RouteModel):
    """Whose route it is."""

    org_id: TenantName = Field(default=HOUSE.org, description="the organisation")
    app_id: TenantName = Field(default=HOUSE.app, description="its application")


class Behaviour(RouteModel):
    """What a route does. All of it is in its hash."""

    model_config = ConfigDict(extra="ignore")

    tenant: RouteTenant = RouteTenant()
    user_id: str = Field(default="", max_length=255, examples=["ada"], description="who wrote it; needed over the API")
    name: Label = Field(default="", description="what people call it")
    region: str = Field(default="", max_length=255, description="only instances of this region run it; none: all")
    inactive: bool = Field(default=False, description="true: it is kept, but does not run")
    delivery_mode: Annotated[DeliveryMode, BeforeValidator(_same)] = Field(
        default=DeliveryMode.AT_LEAST_ONCE, description="how surely its events arrive; exactly_once means effectively_once"
    )
    receiver: PluginUse = Field(description="where its events come from")
    filter_chain: Annotated[tuple[FilterUse, ...], BeforeValidator(_no_list)] = Field(
        default=(), description="what they go through, one after the other"
    )
    sender: PluginUse = Field(description="where they go")

    @property
    def places(self) -> list[tuple[str, PluginUse]]:
        """All its plugins, each with the key it stands at."""
        chain = [(f"filterChain[{n}]", use) for n, use in enumerate(self.filter_chain)]
        return [("receiver", self.receiver), *chain, ("sender", self.sender)]


class Notes(RouteModel):
    """What is said about a route, and does not change what it does."""

    model_config = ConfigDict(extra="ignore")

    id: RouteId = Field(default="", description="its name among the tenant's routes; none: the hash of what it does")
    route_type: str = Field(default="", max_length=255, description="free text, such as trigger or action")
    desc: str = Field(default="", max_length=10_000, description="free text")
    origin: str = Field(default="", max_length=255, description="free text: what the route was made from")
    debug: bool = Field(default=False, description="true: what it does is logged in detail")
    status: str = Field(default="", description="only in answers")
    created: Number = Field(default=0, ge=0, description="only in answers: unix seconds")
    modified: Number = Field(default=0, ge=0, description="only in answers: unix seconds")


class Route(Behaviour, Notes):
    """A receiver, filters and a sender."""

    @property
    def key(self) -> RouteKey:
        return RouteKey(Tenant(self.tenant.org_id, self.tenant.app_id), self.id)


class RouteFile(RouteModel):
    """A file of routes; one that holds a single route may be that route alone, and a list of routes will do too."""

    routes: tuple[Route, ...] = Field(description="the routes, in any order")


_DONE, _SAID = set(Behaviour.model_fields), set(Notes.model_fields)
_TOLD = _SAID - {"id", "status", "created", "modified"}  # those are in answers only


def route_hash(route: Behaviour) -> str:
    """Of all that it does, in hex; plugins' configurations with their defaults, fragments filled in before."""
    content = {name: plain(getattr(route, name)) for name in Behaviour.model_fields}
    for use in (content["receiver"], *content["filter_chain"], content["sender"]):
        del use["fragmentName"]
    return json_hash(content)


def plugin_hash(tenant: Tenant, kind: str, use: PluginUse) -> str:
    """Plugins with equal hashes may be one and the same."""
    return content_hash([tenant.org, tenant.app, kind, use.plugin, use.name, use.config])


def body_of(route: Route) -> dict[str, Any]:
    """What it does, as it was written, without id and tenant: JSON that can be read as a route again."""
    return _written(route, _DONE - {"tenant"})


def notes_of(route: Notes) -> dict[str, Any]:
    """What is said about it, as it was written, without what only answers have."""
    return _written(route, _TOLD)


def _written(route: Route | Notes, only: set[str]) -> dict[str, Any]:
    written = route.model_fields_set
    return {shown: plain(getattr(route, name), True) for name, shown in names(type(route)) if name in written and name in only}
