"""Two pipelines at one site: the time between the kill of the one that routes and the first event that the other routes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import yaml

from harness import Result
from jobparts.latency import Pulse
from jobparts.place import Listener, Site, route
from nodes import until
from trunkline.cli.demo.processes import Child, stop_all

_HOLDER = "SELECT owner FROM site.lease WHERE starts_with(name, 'routes:kafka:') AND expires_at > clock_timestamp()"


def _pipeline(site: Site, name: str) -> Child:
    folder = site.folder / name
    folder.mkdir(parents=True)
    config = {"site": "hub", "node": name, "database": site.dsn, "runtime": str(folder)}
    (folder / "site.yaml").write_text(yaml.safe_dump(config))
    return Child(name, ["pipeline", "run", "--config", str(folder / "site.yaml")], folder / "log", f"bench-{name}")


def takeover(site: Site, times: int) -> Iterator[Result]:
    site.create("in", "out")
    with site.running():
        site.put({f"r{n}": route(n, site.receiver("in"), site.sender("out")) for n in range(100)})
    children: dict[str, Child] = {}
    took: list[float] = []
    try:
        for name in ("p1", "p2"):
            children[name] = _started(site, name)
        for number in range(times):
            took.append(_once(site, children))
            killed = next(name for name, child in children.items() if not child.alive())
            if number + 1 < times:
                children[killed] = _started(site, f"{killed}x")
    finally:
        stop_all(list(children.values()))
    yield Result(
        "takeover_s", round(max(took), 2), f"s from kill -9 to the next routed event, the longest of {times}", 10, most=True
    )
    yield Result("takeover_median_s", round(sorted(took)[len(took) // 2], 2), "s")


def _started(site: Site, name: str) -> Child:
    child = _pipeline(site, name)
    child.start()
    until(lambda: (site.folder / name / "pipeline.ready").exists() or not child.alive(), f"{name} is ready")
    return child


def _once(site: Site, children: dict[str, Child]) -> float:
    heard: list[float] = []

    def hear(payload: Any, at: float) -> None:
        heard.append(at)

    with Pulse(site, "in", 200), Listener(site, "out", hear):
        until(lambda: bool(heard), "events are routed")
        holder = next(child for name, child in children.items() if site.rows(_HOLDER)[0][0].startswith(name))
        holder.kill()
        killed = time.time()
        until(lambda: heard[-1] > killed + 0.5, "the other one goes on")
        return next(at for at in heard if at > killed + 0.5) - killed
