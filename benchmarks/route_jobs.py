"""Routes on Spark: the routing stage, and from Kafka and files to Kafka and the send queue, all on this machine's cores.

Everything is measured warm. Rates from a source to a sink are those of batches that are done, behind the first third of the
events. `--only` runs some sections alone, and then writes their results into a file of their own.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from harness import Result, Size, run
from jobparts.latency import latency
from jobparts.place import Site, servers, site
from jobparts.rates import executors, files_to_queue, many_routes
from jobparts.stage import stage
from jobparts.takeover import takeover
from trunkline.pipeline.session import Spark, open_session
from trunkline.pipeline.warm import warm_up

Sites = Iterator[Site]
Section = Callable[[Spark, Sites, Path, bool], Iterator[Result]]
_FULL = (10, 100, 1_000, 10_000, 100_000)
SECTIONS: dict[str, Section] = {
    "stage": lambda spark, sites, folder, full: stage(spark, _FULL if full else _FULL[:4], 80_000 if full else 40_000),
    "kafka": lambda spark, sites, folder, full: many_routes(
        sites, _FULL if full else (10, 1_000), 600_000 if full else 100_000
    ),
    "files": lambda spark, sites, folder, full: files_to_queue(next(sites), 200_000 if full else 20_000, 20),
    "latency": lambda spark, sites, folder, full: latency(next(sites), 60.0 if full else 5.0, 100 if full else 10),
    "takeover": lambda spark, sites, folder, full: takeover(next(sites), 3 if full else 1),
    "executors": lambda spark, sites, folder, full: executors((1, 2), 300_000 if full else 50_000, folder / "executors"),
}
"""What each measures, in full or small."""


def main() -> None:
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # Spark's workers run a part of this
    words = argparse.ArgumentParser(add_help=False)
    words.add_argument("--only", choices=list(SECTIONS), nargs="+", default=list(SECTIONS), help="sections to run")
    chosen, rest = words.parse_known_args()
    sys.argv[1:] = rest

    def measure(size: Size) -> list[Result]:
        found: list[Result] = []
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            spark = open_session(folder / "spark", "bench")
            stack.callback(spark.stop)
            warm_up(spark, folder / "spark")
            postgres, broker = stack.enter_context(servers(folder))
            sites = (site(spark, postgres, broker, folder, f"site{n}") for n in itertools.count())
            for name in chosen.only:
                for result in SECTIONS[name](spark, sites, folder, size is Size.FULL):
                    print(f"{name}: {result.metric} {result.value:,} {result.unit}", flush=True)
                    found.append(result)
        return found

    run("route_jobs" if chosen.only == list(SECTIONS) else "route_jobs-" + "-".join(chosen.only), measure)


if __name__ == "__main__":
    main()
