"""What becomes of a stored configuration at an instance: it is read, its secrets are followed, and it is compiled.

What is kept of it, and what plugins are named by, are the references: a secret that changed makes no other plugin of it.
"""

from __future__ import annotations

import dataclasses

from trunkline.core.mistakes import Mistakes
from trunkline.routes.compile import CompiledRoute
from trunkline.routes.keys import Tenant
from trunkline.routes.live import START_SECONDS
from trunkline.routes.manager import Making, rests_outside
from trunkline.routes.model import ReadRoute, RouteReader, read_route
from trunkline.routes.storage.base import Body, RouteConfig
from trunkline.routes.workshop import Workshop


def making_at(workshop: Workshop, region: str, start_seconds: float = START_SECONDS) -> Making:
    reader = RouteReader(workshop.plugins)

    def hash(tenant: Tenant, body: Body) -> str:
        return _read(reader, tenant, body).hash

    def compile(config: RouteConfig) -> CompiledRoute:
        route = _read(reader, config.key.tenant, config.body, config.key.id).route
        return dataclasses.replace(workshop.compiled(route), config=route)

    return Making(hash, compile, rests_outside(region), start_seconds, workshop.compiling)


def _read(reader: RouteReader, tenant: Tenant, body: Body, id: str = "") -> ReadRoute:
    reading = read_route({**body, "id": id}, reader, tenant)
    if reading.mistakes:
        raise Mistakes(f"route {id}" if id else "the route", reading.mistakes, "mend these fields")
    return reading.routes[0]
