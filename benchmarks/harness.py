"""What every benchmark shares: sizes, goals, the calibration of the machine, a table for people and a file for machines.

A benchmark is a file `benchmarks/<name>.py` that ends with `run("<name>", measure)`; `measure(size)` returns its results.
`make bench B=<name> SIZE=small` runs it; the file is `benchmarks/results/<name>.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import psycopg
from rich.console import Console
from rich.table import Table

from trunkline.db.embedded import EmbeddedPostgres

RESULTS = Path(__file__).parent / "results"
COPY_ROWS = 200_000
LOOPS = 5_000_000


class Size(StrEnum):
    SMALL = "small"
    FULL = "full"


@dataclass(frozen=True)
class Result:
    """`goal` is a bound: at least for rates, at most for times (`most=True`); none when the number is only reported."""

    metric: str
    value: float
    unit: str
    goal: float | None = None
    most: bool = False

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value <= self.goal if self.most else self.value >= self.goal

    def document(self) -> dict[str, object]:
        return {key: value for key, value in asdict(self).items() if key != "most"} | {"met": self.met}


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def growth(metric: str, once: float, twice: float) -> Result:
    """Time at twice the input over time at the input: about 2 when the cost grows with the input alone."""
    return Result(f"{metric}_growth", round(twice / once, 2), "ratio at double input")


def calibrate() -> dict[str, float]:
    """How fast this machine is: a fixed loop of pure Python, and a fixed COPY into Postgres."""
    loop = min(seconds(_loop) for _ in range(3))
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder) / "postgres") as server:
        copied = min(_copy(server.dsn) for _ in range(3))
    return {
        "python_loops_per_s": round(LOOPS / loop),
        "copy_rows_per_s": round(COPY_ROWS / copied),
        "cores": os.cpu_count() or 1,
        "load_average": round(os.getloadavg()[0], 1),
    }


def _loop() -> None:
    total = 0
    for n in range(LOOPS):
        total += n & 7


def _copy(dsn: str) -> float:
    lines = b"".join(b"%d\tsome text of a row, as long as many\n" % n for n in range(COPY_ROWS))
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE TEMP TABLE calibration (id bigint, words text)")

        def copy() -> None:
            with conn.cursor().copy("COPY calibration FROM STDIN") as rows:
                rows.write(lines)

        return seconds(copy)


def run(name: str, measure: Callable[[Size], Sequence[Result]]) -> None:
    words = argparse.ArgumentParser(description=f"Benchmark {name}; writes benchmarks/results/{name}.json")
    words.add_argument("--size", type=Size, choices=list(Size), default=Size.FULL)
    size: Size = words.parse_args().size
    console = Console(stderr=True)
    console.print(f"benchmark {name}, size {size}: calibrating …")
    calibration = calibrate()
    console.print("measuring …")
    results = measure(size)
    document = {"name": name, "size": size, "calibration": calibration, "results": [r.document() for r in results]}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    _show(name, calibration, results)


def _show(name: str, calibration: dict[str, float], results: Sequence[Result]) -> None:
    marks = {True: "[green]met", False: "[red]missed", None: ""}
    table = Table(title=f"{name}  ({', '.join(f'{k} {v:,}' for k, v in calibration.items())})", title_justify="left")
    for column, justify in (("metric", "left"), ("value", "right"), ("unit", "left"), ("goal", "right"), ("", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for result in results:
        bound = "" if result.goal is None else f"{'≤' if result.most else '≥'} {result.goal:,}"
        table.add_row(result.metric, f"{result.value:,}", result.unit, bound, marks[result.met])
    Console(width=120).print(table)
