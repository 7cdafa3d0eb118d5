"""`trunkline routes test`: what its cases take beyond the start of a process, and `lint` of as many routes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from harness import Result, seconds

ROUTES = 20
TIMES = 5


def cases(count: int) -> Iterator[Result]:
    """`count`: how many cases, over twenty routes in as many files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n in range(ROUTES):
            _write(folder, n, count // ROUTES)
        start = _seconds("version")
        test, lint = (round(_seconds("routes", word, name) - start, 3) for word in ("test", "lint"))
        yield Result(f"routes test of {count} cases, beyond the start", test, "s", 1.0, True)
        yield Result(f"routes lint of {ROUTES} routes and {count} cases, beyond the start", lint, "s")


def _write(folder: Path, n: int, count: int) -> None:
    chain = [
        {"plugin": "match", "config": {"matcher": "pattern", "pattern": {"kind": "alarm", "level": "*"}}},
        {"plugin": "expr", "config": {"expression": f"payload.level > {n}"}},
        {"plugin": "transform", "config": {"transformation": {"id": "{.id}", "text": "{.subject} at {site}"}}},
    ]
    sender = {"plugin": "queue", "config": {"client": "alarms", "destinations": ["hub"]}}
    route = {"id": f"r{n}", "userId": "ada", "receiver": {"plugin": "http"}, "filterChain": chain, "sender": sender}
    (folder / f"r{n}.yaml").write_text(yaml.safe_dump(route))
    (folder / f"r{n}.test.yaml").write_text(yaml.safe_dump({"cases": [_case(k) for k in range(count)]}))


def _case(k: int) -> dict[str, Any]:
    alarm = {"kind": "alarm", "id": f"a{k}", "level": 100, "subject": "boiler"}
    out = [{"payload": {"id": f"a{k}", "text": "boiler at lyon"}, "destinations": ["hub"]}]
    return {"name": f"case {k}", "site": "lyon", "in": [alarm, {"kind": "reading"}], "messages": out, "dropped": 1}


def _seconds(*words: str) -> float:
    command = (sys.executable, "-m", "trunkline.cli.main", *words)
    run = lambda: subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: E731
    run()
    return statistics.median(seconds(run) for _ in range(TIMES))
