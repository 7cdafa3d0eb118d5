"""The status bridge, from real Kafka through Spark to committed rows in Postgres with fsync on, all on this machine's cores.

Bundles are those of the fleet's types. Everything is measured warm. When something was committed is what Postgres says.
`--only` runs some sections alone, and then writes their results into a file of their own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from bridgeparts.age import age
from bridgeparts.growth import more_rows, more_sites
from bridgeparts.overload import overload
from bridgeparts.rows import rows
from bridgeparts.topics import burst, many_topics
from harness import Result, Size, run
from trunkline.pipeline.session import Spark, open_session
from trunkline.pipeline.warm import warm_up

Section = Callable[[Spark, bool], Iterator[Result]]
SECTIONS: dict[str, Section] = {
    "rows": lambda spark, full: rows(spark, 3 if full else 1),
    "growth": lambda spark, full: more_rows(spark, _growth(10 if full else 1)),
    "sites": lambda spark, full: more_sites(spark, *_sites(full)),
    "overload": lambda spark, full: overload(spark, 1_000 if full else 100, 1_000_000 if full else 50_000),
    "topics": lambda spark, full: many_topics(spark, 1_000 if full else 100, 10 if full else 3),
    "burst": lambda spark, full: burst(spark, 1_000 if full else 200),
    "age": lambda spark, full: age(spark, 1_000 if full else 200, 60.0 if full else 10.0),
}
"""What each measures, in full or small."""


def _growth(times: int) -> dict[str, int]:
    return {"100k": 10_000 * times, "300k": 30_000 * times, "1m": 100_000 * times}


def _sites(full: bool) -> tuple[int, dict[str, int], int]:
    counts = (100, 1_000, 5_000) if full else (20, 100, 500)
    names = ("100_sites", "1000_sites", "5000_sites")
    return 1_000_000 if full else 50_000, dict(zip(names, counts, strict=True)), 1_000 if full else 100


def main() -> None:
    words = argparse.ArgumentParser(add_help=False)
    words.add_argument("--only", choices=list(SECTIONS), nargs="+", default=list(SECTIONS), help="sections to run")
    chosen, rest = words.parse_known_args()
    sys.argv[1:] = rest

    def measure(size: Size) -> list[Result]:
        found: list[Result] = []
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            spark = open_session(folder, "bench")
            stack.callback(spark.stop)
            warm_up(spark, folder)
            for name in chosen.only:
                for result in SECTIONS[name](spark, size is Size.FULL):
                    print(f"{name}: {result.metric} {result.value:,} {result.unit}", flush=True)
                    found.append(result)
        return found

    run("bridge" if chosen.only == list(SECTIONS) else "bridge-" + "-".join(chosen.only), measure)


if __name__ == "__main__":
    main()
