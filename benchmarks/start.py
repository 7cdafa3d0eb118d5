"""How long until it works: a node until it is ready, the demo until the first row is at the hub.

Both are warm: what is made once per installation is there, and one run before the measured ones has filled the page cache.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from harness import Result, Size, run
from trunkline.cli.demo.fleet import Site, write_certificates, write_config
from trunkline.cli.demo.processes import Child, stop_all
from trunkline.db.embedded import EmbeddedPostgres, free_port

PATIENCE = 60.0
COMMAND = (sys.executable, "-m", "trunkline.cli.main")


def ready(node_file: Path) -> bool:
    try:
        api = json.loads(node_file.read_text())["api"]
        return httpx.get(f"http://{api}/readyz", timeout=2).status_code == 200
    except (OSError, ValueError, httpx.HTTPError):
        return False


def node_start(site: Site, folder: Path) -> float:
    node = Child("node", ("node", "run", "--config", str(site.config)), folder / "node.log", str(folder))
    begun = time.perf_counter()
    node.start()
    try:
        while not ready(site.folder / "node.json"):
            if time.perf_counter() - begun > PATIENCE or not node.alive():
                raise SystemExit(f"the node did not become ready:\n{node.tail()}")
            time.sleep(0.005)
        return time.perf_counter() - begun
    finally:
        stop_all([node])


def node_starts(times: int) -> list[float]:
    with tempfile.TemporaryDirectory() as name, EmbeddedPostgres(Path(name) / "postgres") as server:
        folder = Path(name)
        site = Site("alone", None, folder / "alone")
        site.folder.mkdir()
        write_certificates((site,), folder)
        write_config(site, server.dsn, f"127.0.0.1:{free_port()}", folder)
        return [node_start(site, folder) for _ in range(times + 1)][1:]


def demo_first_row() -> float:
    done = subprocess.run([*COMMAND, "demo", "--for", "1s", "--json"], stdout=subprocess.PIPE, check=True)
    return float(json.loads(done.stdout)["first_row_seconds"])


def measure(size: Size) -> list[Result]:
    subprocess.run([*COMMAND, "pipeline", "prepare"], check=True)
    nodes = node_starts(5)
    demos = [demo_first_row() for _ in range(2 if size is Size.SMALL else 4)][1:]
    return [
        Result("node_ready_s", round(statistics.median(nodes), 2), "s, median", 2.0, most=True),
        Result("demo_first_row_s", round(statistics.median(demos), 1), "s, median", 20.0, most=True),
        Result("node_ready_worst_s", round(max(nodes), 2), "s"),
        Result("demo_first_row_worst_s", round(max(demos), 1), "s"),
    ]


if __name__ == "__main__":
    run("start", measure)
