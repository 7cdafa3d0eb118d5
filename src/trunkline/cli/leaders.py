"""Whom to ask about a site: only its leader has paths and streams, and the store says where each node's API is."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import typer

from trunkline.cli.kv.client import Client
from trunkline.cli.kv.compare import nodes_of
from trunkline.core.errors import TrunklineError
from trunkline.core.ids import NodeId

AT_ONCE = 16
TOPOLOGY = "/v1/topology"


@dataclass(frozen=True)
class Leader:
    """Where it answers, and its view of /v1/topology."""

    url: str
    topology: dict[str, Any]


def leader(url: str | None, token: str | None) -> Leader:
    """The node that was named or, if it does not lead its site, the one that does."""
    with Client(url, token) as client:
        named = Leader(client.url, client.ask("GET", TOPOLOGY))
    site = named.topology["site"]
    if named.topology["leads"]:
        return named
    found, _ = leaders({site}, nodes_of(url, token, "fleet"), token)
    if site not in found:
        typer.echo(f"no node of {site} says that it leads; this is what {named.url} has", err=True)
    return found.get(site, named)


def leaders(sites: Collection[str], nodes: dict[str, str], token: str | None) -> tuple[dict[str, Leader], dict[str, str]]:
    """Of those sites; and why none was found for the others. `nodes`: node → where its API is."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        asked = {site: threads.submit(_leader_of, _apis(site, nodes), token) for site in sorted(sites)}
    answers = {site: answer.result() for site, answer in asked.items()}
    found = {site: answer for site, answer in answers.items() if isinstance(answer, Leader)}
    return found, {site: answer for site, answer in answers.items() if not isinstance(answer, Leader)}


def _apis(site: str, nodes: dict[str, str]) -> list[str]:
    return [api for name, api in sorted(nodes.items()) if api and NodeId.parse(name).site == site]


def _leader_of(apis: list[str], token: str | None) -> Leader | str:
    why = "none of its nodes leads" if apis else "the store does not say where the API of its nodes is"
    for api in apis:
        try:
            with Client(api, token) as client:
                found = Leader(client.url, client.ask("GET", TOPOLOGY))
        except TrunklineError as error:
            why = f"{error.what}: {error.why}"
            continue
        if found.topology["leads"]:
            return found
    return why
