"""Routes: what filters, the match index and chains cost on one core, what the local runner gets through, what a large table
costs, how soon a change is live, and how long cases take.

`--only` runs some sections alone, and then writes their results into a file of their own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

from harness import Result, Size, run
from routeparts.cases import cases
from routeparts.filters import filters
from routeparts.local import local
from routeparts.scripts import scripts
from routeparts.sync import sync
from routeparts.table import table

Section = Callable[[bool], Iterator[Result]]
SECTIONS: dict[str, Section] = {
    "filters": lambda full: filters(100_000 if full else 10_000, (10, 100, 1_000, 10_000) if full else (10, 100, 1_000)),
    "scripts": lambda full: scripts(20_000 if full else 2_000),
    "local": lambda full: local(50_000 if full else 2_500, (1, 10, 100, 1_000, 10_000) if full else (1, 10, 100)),
    "sync": lambda full: sync(1_200 if full else 100),
    "table": lambda full: table(100_000 if full else 10_000),
    "cases": lambda full: cases(200),
}
"""What each measures, in full or small."""


def main() -> None:
    words = argparse.ArgumentParser(add_help=False)
    words.add_argument("--only", choices=list(SECTIONS), nargs="+", default=list(SECTIONS), help="sections to run")
    chosen, rest = words.parse_known_args()
    sys.argv[1:] = rest

    def measure(size: Size) -> list[Result]:
        found: list[Result] = []
        for name in chosen.only:
            for result in SECTIONS[name](size is Size.FULL):
                print(f"{name}: {result.metric} {result.value:,} {result.unit}", flush=True)
                found.append(result)
        return found

    run("routes" if chosen.only == list(SECTIONS) else "routes-" + "-".join(chosen.only), measure)


if __name__ == "__main__":
    main()
