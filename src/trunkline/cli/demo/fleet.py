"""The shape of the demo's fleet, and the files its processes are started with.

Sites form a chain and a branch: leaf-1 → relay → hub and leaf-2 → hub; further leaves alternate. Every node knows one seed
address (the hub's); a site dials only the links in its configuration, and learns their addresses from the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import yaml

from trunkline.core.errors import Invalid
from trunkline.core.ids import NodeId
from trunkline.net.authority import issue, make_ca

HUB, RELAY = "hub", "relay"
NODE = "node-1"
MIN_SITES, MAX_SITES = 2, 16


@dataclass(frozen=True)
class Site:
    name: str
    parent: str | None
    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "trunkline.yaml"


def plan_sites(count: int, folder: Path) -> tuple[Site, ...]:
    if not MIN_SITES <= count <= MAX_SITES:
        raise Invalid(f"--sites {count}", f"the demo runs {MIN_SITES} to {MAX_SITES} sites", "choose a number between")
    sites = [Site(HUB, None, folder / HUB), Site(RELAY, HUB, folder / RELAY)]
    for n in range(1, count - 1):
        name = f"leaf-{n}"
        sites.append(Site(name, RELAY if n % 2 else HUB, folder / name))
    return tuple(sites)


def behind_relay(sites: tuple[Site, ...]) -> tuple[str, ...]:
    """The sites that the hub reaches over its one link with the relay."""
    return tuple(s.name for s in sites if RELAY in (s.name, s.parent))


def write_certificates(sites: tuple[Site, ...], folder: Path) -> None:
    ca = folder / "ca"
    make_ca(ca, "trunkline demo")
    for site in sites:
        issue(ca, site.folder / "tls", NodeId(site.name, NODE))


def write_config(site: Site, dsn: str, seed: str, folder: Path) -> None:
    tls = site.folder / "tls"
    config: dict[str, object] = {
        "site": site.name,
        "node": NODE,
        "database": dsn,
        "tls": {
            "ca": str(folder / "ca" / "ca.pem"),
            "certificate": str(tls / "certificate.pem"),
            "key": str(tls / "key.pem"),
            "revoked": str(folder / "ca" / "revoked.pem"),
        },
        "link": {
            "listen": seed if site.name == HUB else "127.0.0.1:0",
            "seeds": [seed],
            "links": [site.parent] if site.parent else [],
        },
        "runtime": str(site.folder),
        **({"bridge": {"client": "status"}} if site.name == HUB else {"routes": str(_write_routes(site))}),
    }
    site.config.write_text(yaml.safe_dump(config, sort_keys=False))


def _write_routes(site: Site) -> Path:
    routes = site.folder / "routes.yaml"
    routes.write_text(resources.files("trunkline.cli.demo").joinpath("routes.yaml").read_text())
    return routes
