"""What has to be kept of a batch: messages for another try and dead letters, written in the batch's own transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trunkline.pipeline.jobs.loaded import LoadedRoute
from trunkline.pipeline.jobs.outcomes import Outcome, RouteCount, Told
from trunkline.pipeline.jobs.stored import Connection
from trunkline.routes.local.keeping import SENDER, Kept, Letter
from trunkline.routes.local.outbox import BURY, KEEP, MAX_MESSAGES, bury_values, keep_values


def keep(
    conn: Connection, routes: Mapping[str, LoadedRoute], outcomes: Iterable[Outcome], counts: Mapping[str, RouteCount]
) -> None:
    """In the order in which they were told; `counts` hears how many were kept, and how many are dead."""
    kept: dict[str, list[Outcome]] = {}
    dead: list[Outcome] = []
    for outcome in outcomes:
        if outcome.told is Told.KEEP:
            kept.setdefault(outcome.hash, []).append(outcome)
        elif outcome.told is Told.DEAD:
            dead.append(outcome)
    for hash in sorted(kept):  # in one order, so that two that keep do not lock each other out
        room = _keep(conn, routes[hash], kept[hash])
        counts[hash].kept += room
        counts[hash].dead += len(kept[hash]) - room
    if dead:
        conn.execute(BURY, bury_values([_letter(routes[one.hash], one) for one in dead]))
    for one in dead:
        counts[one.hash].dead += 1


def _keep(conn: Connection, route: LoadedRoute, outcomes: list[Outcome]) -> int:
    messages = [Kept(one.id, one.source, one.content, one.reason, one.came) for one in outcomes]
    row = conn.execute(KEEP, keep_values(route.lane, messages, MAX_MESSAGES)).fetchone()
    return int(row[0]) if row else 0


def _letter(route: LoadedRoute, one: Outcome) -> Letter:
    tries = 1 if one.step == SENDER else 0
    return Letter(route.lane, one.step, one.id, one.source, one.content, one.reason, one.came, tries)
