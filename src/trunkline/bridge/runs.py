"""Runs of senders that keep no incarnation: intake tells them apart and counts them (H39).

Such a sender begins to count its generations anew whenever it starts, so a lower generation is either old or the newest there
is. What it sends of one type is told here, in the order it was read, before anything else looks at its version.

T1  A session that was not heard before begins a run. Without sessions, generation 0 does; and so does a generation that did
    not grow while the sender's time went on: that sender was started anew and its first bundles never came.
T2  The incarnation of a run is the position of the message that began it, and at least one more than any before it.
T3  The same message again begins nothing: it is a duplicate (equal id), or stands before the place where the run began.
T4  What is of the run before, by its place or its session, is dropped. So the newest run's status is never overwritten.
T5  Only the first part of a bundle in chunks begins a run: senders give each part its own id.
T6  Append bundles have no order: they are told, but never dropped.
T7  Places are compared within one queue, and not after records were lost there: a topic made anew begins at 0 again (H31).
T8  A dependency that names a value of any run means the run its base is of at that place: each run counts its values anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from msgspec.structs import replace

from trunkline.bridge.batch import Arrived
from trunkline.core.bundle import UNTOLD, Bundle, Dependency, Mode, Version
from trunkline.db.awake import awake

Key = tuple[str, str]
"""(site, type)"""

# Of these no two bundles of a run have the same generation; parts of a resync may, and events.
_COUNTED = (Mode.COMPLETE, Mode.DELTA)
_LOAD = """
SELECT site, type, incarnation, session, before, began_with, queue, position, generation,
       extract(epoch FROM least(sent_at, now()))::float8
  FROM bridge.run JOIN unnest(%s::text[], %s::text[]) AS k (site, type) USING (site, type) ORDER BY site, type FOR UPDATE OF run
"""
_GREATEST = """
SELECT k.site, k.type, greatest(
           (SELECT l.incarnation FROM bridge.ledger l WHERE l.site = k.site AND l.type = k.type),
           (SELECT i.incarnation FROM bridge.inbox i WHERE i.site = k.site AND i.type = k.type AND i.key = ''), 0)
  FROM unnest(%s::text[], %s::text[]) AS k (site, type)
"""
_SAVE = """
INSERT INTO bridge.run (site, type, incarnation, session, before, began_with, queue, position, generation, sent_at)
SELECT site, type, incarnation, session, before, began_with, queue, position, generation, to_timestamp(sent)
  FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[],
              %s::float8[])
    AS r (site, type, incarnation, session, before, began_with, queue, position, generation, sent)
 ORDER BY site, type
ON CONFLICT (site, type) DO UPDATE
   SET incarnation = excluded.incarnation, session = excluded.session, before = excluded.before,
       began_with = excluded.began_with, queue = excluded.queue, position = excluded.position,
       generation = excluded.generation, sent_at = excluded.sent_at
"""
_FORGET_PLACES = "UPDATE bridge.run SET position = 0, queue = '' WHERE site = ANY (%s)"


class Run(msgspec.Struct, frozen=True):
    """`before`: the session before it. `generation`, `sent`: the newest that was heard of a run without sessions."""

    incarnation: int
    session: str
    before: str
    began_with: str
    queue: str
    position: int
    generation: int
    sent: float | None


def tell(run: Run | None, arrived: Arrived, above: int = 0) -> tuple[Run, Bundle | None]:
    """The run after this bundle, and the bundle with its incarnation; none if it is of a past run, or a duplicate.

    `above`: the greatest incarnation that is known of its site and type."""
    bundle = arrived.bundle
    if run is not None and (_is_past(run, arrived) or _is_duplicate(run, bundle)):
        return run, _told(run, bundle) if bundle.mode is Mode.APPEND else None
    run = _begun(run, arrived, above) if run is None or _begins(run, arrived) else _heard(run, arrived)
    return run, _told(run, bundle)


def _told(run: Run, bundle: Bundle) -> Bundle:
    return replace(bundle, version=Version(run.incarnation, bundle.version.generation))


def _is_past(run: Run, arrived: Arrived) -> bool:
    session = arrived.bundle.session
    if session and session == run.before:
        return True
    return arrived.queue == run.queue and arrived.position < run.position


def _is_duplicate(run: Run, bundle: Bundle) -> bool:
    return bundle.version.generation == 0 and bundle.id == run.began_with and bundle.chunk is None


def _begins(run: Run, arrived: Arrived) -> bool:
    bundle = arrived.bundle
    if bundle.session:
        return bundle.session != run.session
    if bundle.id == run.began_with or (bundle.chunk is not None and bundle.chunk.end > len(bundle.data)):
        return False
    return bundle.version.generation == 0 or _went_back(run, arrived)


def _went_back(run: Run, arrived: Arrived) -> bool:
    later = arrived.sent is not None and run.sent is not None and arrived.sent > run.sent
    first_new = run.generation + (arrived.bundle.mode in _COUNTED)
    return later and arrived.bundle.version.generation < first_new


def _begun(run: Run | None, arrived: Arrived, above: int) -> Run:
    bundle = arrived.bundle
    return Run(
        incarnation=max(arrived.position, above + 1, run.incarnation + 1 if run else 1),
        session=bundle.session,
        before=run.session if run else "",
        began_with=bundle.id,
        queue=arrived.queue,
        position=arrived.position,
        generation=bundle.version.generation,
        sent=arrived.sent,
    )


def _heard(run: Run, arrived: Arrived) -> Run:
    bundle = arrived.bundle
    if bundle.session:
        return run
    times = [time for time in (run.sent, arrived.sent) if time is not None]
    return replace(run, generation=max(run.generation, bundle.version.generation), sent=max(times, default=None))


def tell_all(
    runs: Mapping[Key, Run], bundles: Iterable[Arrived], above: Mapping[Key, int]
) -> tuple[dict[Key, Run], list[Arrived]]:
    """The runs after these bundles, which are in the order they were read; and the bundles that stay."""
    after, kept = dict(runs), []
    sessions = {(*key, run.session): run for key, run in runs.items()}
    bases: list[Run | None] = []
    for arrived in bundles:
        bundle: Bundle | None = arrived.bundle
        if arrived.bundle.version.incarnation == UNTOLD:
            key = arrived.bundle.source, arrived.bundle.type
            after[key], bundle = tell(after.get(key), arrived, above.get(key, 0))
            sessions[*key, after[key].session] = after[key]
        if bundle is not None:
            kept.append(arrived if bundle is arrived.bundle else replace(arrived, bundle=bundle))
            bases.append(after.get((bundle.source, bundle.dependency.type)) if bundle.dependency else None)
    return after, [_of_base(arrived, base, sessions) for arrived, base in zip(kept, bases, strict=True)]


def _of_base(arrived: Arrived, base: Run | None, sessions: Mapping[tuple[str, str, str], Run]) -> Arrived:
    """With the run of its base (T8). A session tells which, wherever the base stands: its first bundles may be conflated."""
    bundle, needs = arrived.bundle, arrived.bundle.dependency
    if needs is None or needs.version.incarnation:
        return arrived
    if bundle.session or (base and base.session):
        base = sessions.get((bundle.source, needs.type, bundle.session))
    if base is None:
        return arrived
    named = Dependency(needs.type, Version(base.incarnation, needs.version.generation))
    return replace(arrived, bundle=replace(bundle, dependency=named))


def tell_runs(conn: psycopg.Connection[Any], bundles: Sequence[Arrived]) -> list[Arrived]:
    """The bundles with their incarnations, without those of past runs; `bundles` are in the order they were read."""
    untold = [a.bundle for a in bundles if a.bundle.version.incarnation == UNTOLD]
    keys = sorted({(bundle.source, bundle.type) for bundle in untold})
    if not keys:
        return list(bundles)
    bases = {(bundle.source, bundle.dependency.type) for bundle in untold if bundle.dependency}
    wanted = _columns(sorted(bases.union(keys)))
    before = {(site, type_): Run(*run) for site, type_, *run in conn.execute(_LOAD, wanted)}
    after, kept = tell_all(before, awake(conn, bundles), {})
    begun = [key for key in keys if key not in before or before[key].incarnation != after[key].incarnation]
    if begun:
        above = {(site, type_): known for site, type_, known in conn.execute(_GREATEST, _columns(begun))}
        after, kept = tell_all(before, awake(conn, bundles), above)
    _save(conn, {key: after[key] for key in keys if after[key] != before.get(key)})
    return kept


def _save(conn: psycopg.Connection[Any], runs: Mapping[Key, Run]) -> None:
    if runs:
        columns = ([getattr(run, name) for run in runs.values()] for name in Run.__struct_fields__)
        conn.execute(_SAVE, [*_columns(runs), *columns])


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def forget_places(conn: psycopg.Connection[Any], sites: Sequence[str]) -> None:
    """Records of these sites are gone, perhaps with their queue: what comes next may stand before what came last (T7)."""
    if sites:
        conn.execute(_FORGET_PLACES, (list(sites),))
