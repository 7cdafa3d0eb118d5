"""The node's REST API, put together. A request goes through these, from the outside in:

0. `EarsAddresses` knows it by its address in EARS.
1. `Observe`  gives it an id and a span, logs and counts it, and turns every error into problem details.
2. `Gate`     refuses pages of other sites, those without a token, those who ask too often, those who may not.
3. `Limits`   gives it a place among the running ones, its seconds, and its bytes.
4. the endpoint, which asks the node's view in a thread.

A stream goes on until its client goes or the server stops, which ends the streams first.

/livez goes through 2 and 3 untouched: a node that is overloaded is still alive.
"""

from __future__ import annotations

from typing import NoReturn

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from opentelemetry.trace import NoOpTracer, Tracer
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

import trunkline
from trunkline.api.bridge import offer_bridge
from trunkline.api.docs import offer_docs
from trunkline.api.ears import EarsAddresses
from trunkline.api.endpoints import offer_events, offer_status
from trunkline.api.gate import Gate, request_rate
from trunkline.api.health import offer_metrics, offer_probes
from trunkline.api.limits import Limits
from trunkline.api.metrics import HttpNumbers
from trunkline.api.observe import Observe
from trunkline.api.openapi import describe
from trunkline.api.problem import refusal
from trunkline.api.queues import offer_queues
from trunkline.api.routes import offer_routes
from trunkline.api.routesasking import RoutesAsking
from trunkline.api.routesevents import offer_route_events
from trunkline.api.routesfragments import offer_fragments
from trunkline.api.routesletters import offer_letters
from trunkline.api.routeslooks import offer_table
from trunkline.api.routesplugins import offer_plugins
from trunkline.api.routestenants import offer_tenants
from trunkline.api.routestop import offer_top
from trunkline.api.routestrials import offer_trials
from trunkline.api.storereads import Asking, offer_store_reads
from trunkline.api.storewatch import Streams, offer_store_watch
from trunkline.api.storewrites import offer_store_writes
from trunkline.api.threads import Threads
from trunkline.api.tokens import Keyring
from trunkline.api.topology import offer_topology, offer_trunk
from trunkline.api.view import NodeView
from trunkline.api.visit import visit_of
from trunkline.core.clock import Clock, SystemClock
from trunkline.core.config import ApiConfig

VIEW_THREADS = 32
DEFAULTS = ApiConfig()


def create_app(view: NodeView, api: ApiConfig = DEFAULTS, tracer: Tracer | None = None, clock: Clock | None = None) -> FastAPI:
    clock, registry, keyring = clock or SystemClock(), CollectorRegistry(), Keyring(api.tokens)
    threads = Threads("api", VIEW_THREADS)

    async def refuse(request: Request, error: Exception) -> NoReturn:
        raise refusal(error, visit_of(request.scope).asked)

    app: FastAPI = FastAPI(
        title="Trunkline",
        version=trunkline.__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: refuse, RequestValidationError: refuse},
        middleware=[
            Middleware(EarsAddresses),
            Middleware(Observe, lambda: app.routes, tracer or NoOpTracer(), HttpNumbers(registry), clock),
            Middleware(Gate, keyring, request_rate(api.requests_per_second), clock, lambda tenant: view.routes.tenant(tenant)),
            Middleware(Limits, api.max_body_bytes, api.request_seconds),
        ],
    )
    app.state.guarded, app.state.streams = bool(keyring), Streams()
    app.openapi = lambda: describe(app, bool(keyring))  # type: ignore[method-assign]
    offer_events(app, view, threads)
    offer_status(app, view, threads)
    offer_topology(app, view, threads)
    offer_trunk(app, view, threads)
    offer_queues(app, view, threads)
    offer_bridge(app, view, threads)
    offer_store_reads(app, asking := Asking(view, threads))
    offer_store_writes(app, asking)
    offer_store_watch(app, asking, app.state.streams)
    _offer_routing(app, RoutesAsking(view, threads))
    offer_probes(app, view)
    offer_metrics(app, view, registry, threads)
    offer_docs(app)
    return app


def _offer_routing(app: FastAPI, asking: RoutesAsking) -> None:
    offer_routes(app, asking)
    offer_tenants(app, asking)
    offer_fragments(app, asking)
    offer_plugins(app, asking)
    offer_table(app, asking)
    offer_trials(app, asking)
    offer_route_events(app, asking)
    offer_letters(app, asking)
    offer_top(app, asking)
