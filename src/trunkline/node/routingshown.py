"""What a node says of its routing table: whether it is well, and its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import structlog

from trunkline.core.errors import Invalid, Retryable, TrunklineError
from trunkline.core.health import Check
from trunkline.node.routetotals import COUNTED, CountingRunner
from trunkline.routes.counted import SparkCounts
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import HOUSE
from trunkline.routes.local.hooks import Posted
from trunkline.routes.local.runner import LocalRunner
from trunkline.routes.manager import RoutingTableManager
from trunkline.routes.operating import RoutesOperating
from trunkline.routes.outcome import Outcome

MOST_REFUSALS = 3
"""In the reason of a check; `routes status` has all of them."""
MOST_CUSTOM = 1_000
"""Names of counters that filters may make: each is a series of somebody's Prometheus."""
REQUEST_ID = "x-request-id"

log = structlog.get_logger(__name__)


def say(fields: Mapping[str, Any]) -> None:
    log.info("a route says", said=dict(fields))


class Custom:
    """What `metric` filters count; names beyond the bound are counted together."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, name: str, count: int) -> None:
        self.counts[name if name in self.counts or len(self.counts) < MOST_CUSTOM else "other"] += count


def event_of(payload: Any, metadata: dict[str, str], now: float) -> Event:
    return Event(payload, metadata, Source(tenant=HOUSE, trace_id=metadata.get(REQUEST_ID, ""), at=now))


def took(posted: Posted) -> list[str]:
    """The ids of the routes that took an event, which is then as durable as their senders make it."""
    done = posted.done
    if done is not None and done.outcome is not Outcome.ACKED:
        raise Retryable("event", done.reason or "it was not done in time", "send it again")
    for one in posted.took:
        if one.letters:
            why = f"route {one.route}: {one.letters[0]}; it is kept as a dead letter"
            raise Invalid("event", why, "mend the event or the route; the letter can be tried again")
    return [one.route for one in posted.took]


def check(manager: RoutingTableManager, runner: LocalRunner, now: float) -> Check:
    """What is refused does not make a node unfit for the rest: it is told, and the check is ok."""
    table, last = manager.table, manager.repairs.last
    words = [f"{_many(len(table.live), 'live route')} of {_many(len(table.ids), 'id')}, revision {manager.repairs.revision}"]
    if last is not None:
        words.append(f"compared with the storage {max(0.0, now - last.at):.0f} s ago")
    if runner.held:
        words.append(f"receives for {', '.join(sorted(map(str, runner.held)))}")
    return Check("routes", manager.ready, "; ".join([*words, *_refusals(manager)]))


def _refusals(manager: RoutingTableManager) -> Iterator[str]:
    refused = manager.table.refused
    if refused:
        first = [f"{key}: {refused[key].reason}" for key in sorted(refused)[:MOST_REFUSALS]]
        more = f" and {len(refused) - len(first)} more" if len(refused) > len(first) else ""
        yield f"{len(refused)} refused: {', '.join(first)}{more}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def numbers(operating: RoutesOperating, runner: LocalRunner, counting: CountingRunner, custom: Custom) -> dict[str, Any]:
    manager = operating.manager
    table, repairs = manager.table, manager.repairs
    totals = counting.totals(manager.live())
    return {
        "ids": len(table.ids),
        "live": len(table.live),
        "resting": sum(1 for known in table.ids.values() if known.rests),
        "refused": len(table.refused),
        "revision": repairs.revision,
        "repairs": repairs.done,
        "repaired": repairs.repaired,
        "instances": 1 + len(operating.others()),
        "groups": len(runner.held),
        "events": [_events(plugins, counts) for plugins, counts in totals.items()],
        "custom": dict(custom.counts),
    }


async def spark_numbers(spark: SparkCounts | None) -> dict[str, Any]:
    """Of the site: each node says the same. Nothing while the database is away."""
    if spark is None:
        return {}
    try:
        plugins, groups, custom = await spark.plugins(), await spark.groups(), await spark.custom(MOST_CUSTOM)
    except TrunklineError as error:
        log.warning("numbers of routes on Spark are missing", reason=str(error))
        return {}
    shown = [{"receiver": r, "sender": s, **msgspec.to_builtins(numbers)} for (r, s), numbers in plugins.items()]
    return {"spark": shown, "spark_groups": msgspec.to_builtins(groups), "spark_custom": custom}


def _events(plugins: tuple[str, str], counts: Counter[str]) -> dict[str, Any]:
    return {"receiver": plugins[0], "sender": plugins[1], **{name: counts[name] for name in COUNTED}}
