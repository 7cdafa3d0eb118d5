"""From a source to a sink, by batches that are done: warm, and without the first of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import Result
from jobparts.place import Site, event, route
from nodes import until

PATIENCE = 600.0


def kafka_to_kafka(site: Site, routes: int, events: int) -> float:
    """Events per second, behind the first third."""
    site.create("in", "out")
    with site.running():
        site.put({f"r{n}": route(n, site.receiver("in"), site.sender("out")) for n in range(routes)})
        site.until_looked()
    site.fill("in", events, routes)
    with site.running():
        until(lambda: site.routed() >= events, f"all events are routed by {routes} routes", PATIENCE)
    assert site.records("out") == events, f"{site.records('out')} of {events} came out"
    return site.rate(events // 3)


def many_routes(sites: Iterator[Site], counts: Sequence[int], events: int) -> Iterator[Result]:
    rates: dict[int, float] = {}
    for count in counts:
        rates[count] = kafka_to_kafka(next(sites), count, events)
        name = f"{count // 1000}k" if count >= 1000 else str(count)
        yield Result(f"kafka_to_kafka_per_s_{name}_routes", round(rates[count]), "events/s of 1 KB, source to committed batch")
    if 1_000 in rates:
        yield Result("kafka_to_kafka_per_s", round(rates[1_000]), "events/s of 1 KB at 1,000 routes", 50_000)
    if 10 in rates and 10_000 in rates:
        yield Result("end_to_end_ratio_10k_vs_10_routes", round(rates[10_000] / rates[10], 3), "of the rate at 10 routes")


def files_to_queue(site: Site, events: int, files: int) -> Iterator[Result]:
    folder = site.folder / "in"
    _write(folder, events, files)
    site.rows("INSERT INTO queues.site (name) VALUES ('b') RETURNING 1")
    receiver = {"plugin": "files", "config": {"path": str(folder), "pattern": "*.jsonl", "maxFiles": 4}}
    sender = {"plugin": "queue", "config": {"client": "load", "destinations": ["b"]}}
    with site.running():
        site.put({f"r{n}": route(n, receiver, sender) for n in range(100)})
        until(lambda: site.routed() >= events, "all lines are routed", PATIENCE)
    yield Result("files_to_queue_per_s", round(site.rate(events // 3)), "lines/s of 1 KB, 100 routes, into the send queue")
    shutil.rmtree(folder)


def _write(folder: Path, events: int, files: int) -> None:
    folder.mkdir(parents=True)
    each = events // files
    for file in range(files):
        lines = b"\n".join(event(n, 100) for n in range(file * each, (file + 1) * each))
        (folder / f".{file:04}").write_bytes(lines + b"\n")
        (folder / f".{file:04}").rename(folder / f"{file:04}.jsonl")


def executors(counts: Sequence[int], events: int, folder: Path) -> Iterator[Result]:
    """The same with executors in processes of their own, as on a cluster: each has one core."""
    import subprocess
    import sys

    for count in counts:
        words = [
            sys.executable,
            "-m",
            "jobparts.child",
            f"local-cluster[{count},1,1024]",
            str(events),
            str(folder / str(count)),
        ]
        found = subprocess.run(words, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr[-2000:]
        rate = json.loads(found.stdout.splitlines()[-1])
        yield Result(f"kafka_to_kafka_per_s_{count}_executors", round(rate), "events/s of 1 KB at 1,000 routes")
