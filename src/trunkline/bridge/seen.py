"""Which sites were heard, and when they say they were: what their liveness is judged by.

The time is the one a bundle carries, at most that of its record and at most now: a clock that is ahead keeps no site alive.
A bundle without any time was heard now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from trunkline.bridge.batch import Arrived

_SEE = """
INSERT INTO bridge.site AS s (site, transport, first_seen, last_seen)
SELECT site, %s, now(), least(to_timestamp(sent / 1e6::float8), now())
  FROM unnest(%s::text[], %s::bigint[]) AS n (site, sent) ORDER BY site
ON CONFLICT (site) DO UPDATE SET last_seen = greatest(s.last_seen, excluded.last_seen), transport = excluded.transport
 WHERE s.last_seen < excluded.last_seen OR s.transport <> excluded.transport
"""


def newest(bundles: Iterable[Arrived]) -> dict[str, float | None]:
    """By site, when it last sent something; none: a bundle does not say it, so it was now."""
    sent: dict[str, float | None] = {}
    for arrived in bundles:
        before = sent.setdefault(arrived.bundle.source, arrived.sent)
        if before is not None and (arrived.sent is None or arrived.sent > before):
            sent[arrived.bundle.source] = arrived.sent
    return sent


def see(conn: psycopg.Connection[Any], transport: str, bundles: Iterable[Arrived]) -> None:
    sent = newest(bundles)
    if sent:
        conn.execute(_SEE, (transport, list(sent), [_microseconds(seconds) for seconds in sent.values()]))


def _microseconds(seconds: float | None) -> int | None:
    """Whole numbers, which is all that Postgres keeps: thousands of them are rendered much faster than fractions."""
    return None if seconds is None else round(seconds * 1e6)
