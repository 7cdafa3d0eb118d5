"""The routing stage alone, in Spark's own workers, one per core: bytes of events in, messages for a sender out.

Each task has its events in memory before the clock starts. What it does then is what a task of a job does behind its source:
it reads the JSON, finds the routes, runs their filters, makes the messages and hands them to a sender, which here forgets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from harness import Result
from jobparts.place import event, route
from trunkline.pipeline.session import Spark

CHUNK, ROUNDS = 5_000, 5


def _task(routes: int, events: int, bodies: Any) -> Any:
    """What one worker does; it gives the seconds of a round, at the median."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import gc
        import statistics
        import time
        import uuid

        import pyarrow as pa

        from trunkline.db.lease import Grant
        from trunkline.pipeline.jobs.loaded import Loaded
        from trunkline.pipeline.jobs.settings import JobSettings
        from trunkline.pipeline.jobs.stage import Item, Stage, Unsent
        from trunkline.pipeline.jobs.stored import Member
        from trunkline.routes.event import Event, Source
        from trunkline.routes.groups import Group
        from trunkline.routes.keys import HOUSE, RouteKey
        from trunkline.routes.receivers.reading import read_or_text

        class Forgetting:
            def __init__(self) -> None:
                self.items: list[Item] = []

            def put(self, items: Sequence[Item]) -> None:
                self.items += items

            def finish(self) -> tuple[list[Item], list[Unsent]]:
                return self.items, []

        loaded = Loaded(JobSettings("", "hub", "bench", Group("kafka", "b"), Grant("bench", uuid.uuid4(), 1), 1))
        for n in range(routes):
            needs = [[{"root": "payload", "segments": ["kind"]}, f"k{n}"]]
            loaded.join(Member(f"h{n}", RouteKey(HOUSE, f"r{n}"), bodies(n), needs))
        (receiver,) = loaded.receivers.values()
        data = [event(n, routes) for n in range(events)]

        def once() -> float:
            gc.disable()  # as a task does
            begun = time.perf_counter()
            stage = Stage(loaded, Forgetting())
            for at in range(0, events, CHUNK):
                came = [
                    Event(read_or_text(one)[0], {"kafka": {"offset": n}}, Source(f"in@bench/0/{n}", HOUSE, "", 1.0))
                    for n, one in enumerate(data[at : at + CHUNK], at)
                ]
                stage.take(receiver, came)
            for _ in stage.finish():
                pass
            took = time.perf_counter() - begun
            gc.enable()
            return took

        for _ in batches:
            pass
        once()
        seconds = statistics.median(once() for _ in range(ROUNDS))
        yield pa.RecordBatch.from_arrays([pa.array([seconds])], names=["seconds"])

    return run


def rate(spark: Spark, routes: int, events: int) -> float:
    """Events per second of all cores."""
    end = {"plugin": "kafka", "config": {"brokers": "b", "topic": "t"}}
    tasks = spark.cores
    frame = spark.session.range(0, tasks, 1, tasks)
    task = _task(routes, events, lambda n: route(n, end, end))
    seconds = [row.seconds for row in frame.mapInArrow(task, "seconds DOUBLE").collect()]
    return sum(events / one for one in seconds)


def stage(spark: Spark, counts: Sequence[int], events: int) -> Iterator[Result]:
    rates = {count: rate(spark, count, events) for count in counts}
    for count, found in rates.items():
        goal = 90_000 if count == 10_000 else None
        name = f"{count // 1000}k" if count >= 1000 else str(count)
        yield Result(f"stage_events_per_s_{name}_routes", round(found), "events/s of 1 KB, all cores", goal)
    if 10_000 in rates:
        yield Result("ratio_10k_vs_10_routes", round(rates[10_000] / rates[10], 3), "of the stage's rate at 10 routes", 0.85)
