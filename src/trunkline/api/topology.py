"""Paths and what is carried over them, under /v1/topology and /v1/trunk."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Path, Response

from trunkline.api import topologymodels as shown
from trunkline.api.endpoints import as_json, json_response
from trunkline.api.openapi import GUARDED, errors, example_answer
from trunkline.api.problem import NO_SITE, Refused
from trunkline.api.threads import Threads
from trunkline.api.view import NodeView

MOST_NAMED = 20
SiteName = Annotated[str, Path(description="whose records", examples=["lyon"])]


def offer_topology(app: FastAPI, view: NodeView, threads: Threads) -> None:
    @app.get(
        "/v1/topology",
        summary="Neighbours, and the one that each site's records are taken from",
        description="What the node that leads its site has decided; a node that does not lead has none of it.",
        response_model=shown.TopologyShown,
        responses=example_answer(shown.TOPOLOGY) | errors(*GUARDED),
    )
    async def topology() -> Response:
        return json_response(await threads.run(lambda: as_json(view.topology)))

    @app.get(
        "/v1/topology/table",
        summary="Who takes whose records from whom, of all sites that published it",
        description="Sites publish their rows while the fleet is small (`topology.publish_rows`); `missing` names the others.",
        response_model=shown.TableShown,
        responses=example_answer(shown.TABLE) | errors(*GUARDED),
    )
    async def table() -> Response:
        return json_response(await threads.run(lambda: as_json(view.topology_table)))

    @app.get(
        "/v1/topology/why/{site:path}",
        summary="Why a site's records are taken from this neighbour and not from another",
        response_model=shown.WhyShown,
        responses=example_answer(shown.WHY) | errors(*GUARDED, 404),
    )
    async def why(site: SiteName) -> Response:
        return json_response(await threads.run(lambda: as_json(_why, view, site)))


def offer_trunk(app: FastAPI, view: NodeView, threads: Threads) -> None:
    @app.get(
        "/v1/trunk",
        summary="What was carried: per link, per origin, and for whom",
        response_model=shown.TrunkShown,
        responses=example_answer(shown.TRUNK) | errors(*GUARDED),
    )
    async def trunk() -> Response:
        return json_response(await threads.run(lambda: as_json(view.trunk)))


def _why(view: NodeView, site: str) -> dict[str, Any]:
    found = view.topology_why(site)
    if found is None:
        raise _not_known(site, view)
    return found


def _not_known(site: str, view: NodeView) -> Refused:
    here, table = view.topology()["site"], view.topology_table()
    known = sorted({*table["sites"], *table["missing"]} - {here})
    why = "it is this site itself, which takes its own records from nobody" if site == here else "nobody told of it here"
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    named = ", ".join(known[:MOST_NAMED]) + more if known else "none yet: see that its links are up"
    return Refused(NO_SITE, f"site {site!r}", why, f"name one of those that are known: {named}")
