"""Routing queues between real sites: each its own Postgres server with fsync on and its own node, links over TLS.

All processes share this machine's cores: the application, the nodes, the servers. `--only` runs some sections alone, and then
writes their results into a file of their own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping

from harness import Result, Size, run
from queueparts.destinations import destinations
from queueparts.latency import latency
from queueparts.nats import nats
from queueparts.outage import outage
from queueparts.sparkrates import spark_rates
from queueparts.throughput import throughput

Measured = Mapping[str, float]
Section = Callable[[bool, Measured], Iterator[Result]]
SECTIONS: dict[str, Section] = {
    "throughput": lambda full, _: throughput(60.0 if full else 5.0),
    "latency": lambda full, _: latency(60.0 if full else 5.0),
    "destinations": lambda full, _: destinations(10.0 if full else 1.0),
    "outage": lambda full, _: outage(60.0 if full else 5.0),
    "spark": lambda full, _: spark_rates(50_000 if full else 5_000),
    "nats": lambda full, measured: nats(30.0 if full else 3.0, measured),
}
"""What each measures, in full or small; and what was measured before it."""


def main() -> None:
    words = argparse.ArgumentParser(add_help=False)
    words.add_argument("--only", choices=list(SECTIONS), nargs="+", default=list(SECTIONS), help="sections to run")
    chosen, rest = words.parse_known_args()
    sys.argv[1:] = rest

    def measure(size: Size) -> list[Result]:
        found: list[Result] = []
        for name in chosen.only:
            for result in SECTIONS[name](size is Size.FULL, {r.metric: r.value for r in found}):
                print(f"{name}: {result.metric} {result.value:,} {result.unit}", flush=True)
                found.append(result)
        return found

    run("queues" if chosen.only == list(SECTIONS) else "queues-" + "-".join(chosen.only), measure)


if __name__ == "__main__":
    main()
