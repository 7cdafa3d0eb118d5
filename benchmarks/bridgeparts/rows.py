"""Rows per second from Kafka to committed rows, as a share of what plain psycopg reaches on the same rows in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bridgeparts import limit
from bridgeparts.hub import running
from bridgeparts.limit import LEAST_ROWS_PER_S, Limit
from bridgeparts.payloads import Fleet
from bridgeparts.rounds import Rounds, Took, cpu
from harness import Result
from trunkline.pipeline.session import Spark

_WARM_ROUNDS = 3
"""For each round that counts: until the JVM has compiled what it runs."""
FLEET = Fleet(sites=10, clusters=300, policies=50, failing=270)


def rows(spark: Spark, rounds: int) -> Iterator[Result]:
    """The limit is measured before and after, while the bridge does nothing."""
    with running(spark) as hub:
        plain = hub.second_database("plain")
        limit.measure(plain, FLEET)
        limits = [limit.measure(plain, FLEET) for _ in range(rounds)]
        hub.create_topics(FLEET.names())
        hub.start()
        fleet = Rounds(hub, FLEET)
        fleet.seed()
        for _ in range(_WARM_ROUNDS * rounds):
            fleet.insert(), fleet.flip()
        went = [(fleet.insert(), fleet.flip()) for _ in range(rounds)]
        again, written = fleet.resend()
        hub.stop()
        limits += [limit.measure(plain, FLEET) for _ in range(rounds)]
    inserts, flips = [one for one, _ in went], [one for _, one in went]
    yield from _shares(limits, inserts, flips)
    yield Result("unchanged_rows_written", written, f"rows, {again.rows:,} sent again", goal=0, most=True)
    yield Result("unchanged_rows_per_s", round(again.per_s), "rows/s")
    yield from cpu("insert", inserts)
    yield from cpu("flip", flips)
    yield from cpu("unchanged", [again])


def _shares(limits: list[Limit], inserts: list[Took], flips: list[Took]) -> Iterator[Result]:
    counts = all(one.counts for one in limits)
    measured = {"insert": ([x.insert for x in limits], inserts), "flip": ([x.flip for x in limits], flips)}
    for name, (plain, went) in measured.items():
        most, reached = statistics.median(plain), statistics.median(one.per_s for one in went)
        yield Result(f"limit_{name}_rows_per_s", round(most), "rows/s, plain COPY + MERGE", LEAST_ROWS_PER_S)
        yield Result(f"{name}_rows_per_s", round(reached), f"rows/s, {went[0].rows:,} rows")
        word = "of the limit" if counts else "of a limit that is too low to count"
        yield Result(f"share_of_limit_{name}", round(reached / most, 3), word, goal=0.7)
        yield Result(f"{name}_seconds", round(statistics.median(one.seconds for one in went), 3), "s, sent to committed")
        yield Result(f"{name}_intake_seconds", round(statistics.median(one.intake for one in went), 3), "s, sent to inbox")
