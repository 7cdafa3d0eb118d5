"""Sets of destinations: kept once each, known to everybody by a number.

Only the stamper adds to them, in the round that meets a set for the first time (H08). They never change and never go, so
whoever reads them may remember them; numbers grow, so whoever remembers them reads only what is new.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Set
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from trunkline.core.ids import ALL_SITES

Sites = tuple[str, ...]
REMEMBERED = 1000
"""Questions of which the answer is remembered."""

_NEWER = "SELECT id, sites FROM queues.destination_set WHERE id > %s ORDER BY id"
_INTERN = """
WITH named AS (
    SELECT DISTINCT ARRAY(SELECT jsonb_array_elements_text(list)) AS sites FROM jsonb_array_elements(%s::jsonb) AS list
), added AS (
    INSERT INTO queues.destination_set (digest, sites) SELECT queues.set_digest(sites), sites FROM named
    ON CONFLICT (digest) DO NOTHING RETURNING id, sites
)
SELECT id, sites FROM added
 UNION ALL
SELECT s.id, s.sites FROM named n JOIN queues.destination_set s ON s.digest = queues.set_digest(n.sites)
"""


def intern(conn: psycopg.Connection[Any], sets: Iterable[Sites]) -> dict[Sites, int]:
    """In the caller's transaction: the numbers of these sets, each in order and without repetition."""
    lists = [list(sites) for sites in sets]
    if not lists:
        return {}
    return {tuple(sites): number for number, sites in conn.execute(_INTERN, (Jsonb(lists),))}


class Destinations:
    """A memory of the interned sets. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sites: dict[int, Sites] = {}
        self._members: dict[str, set[int]] = {}
        self._meeting: dict[frozenset[str], frozenset[int]] = {}
        self._newest = 0

    def refresh(self, conn: psycopg.Connection[Any]) -> None:
        self.add({number: tuple(sites) for number, sites in conn.execute(_NEWER, (self._newest,))})

    def add(self, sets: Mapping[int, Sites]) -> None:
        with self._lock:
            for number, sites in sets.items():
                self._sites[number] = sites
                self._newest = max(self._newest, number)
                for site in sites:
                    self._members.setdefault(site, set()).add(number)
            if sets:
                self._meeting = {}

    def knows(self, numbers: Iterable[int]) -> bool:
        return all(number in self._sites for number in numbers)

    def sites(self, number: int) -> Sites:
        return self._sites[number]

    def meeting(self, destinations: Set[str]) -> frozenset[int]:
        """The sets that reach any of these sites."""
        asked = frozenset(destinations)
        with self._lock:
            if asked not in self._meeting:
                if len(self._meeting) >= REMEMBERED:
                    self._meeting = {}
                hit = (self._members.get(site, set()) for site in (*asked, ALL_SITES))
                self._meeting[asked] = frozenset(n for numbers in hit for n in numbers)
            return self._meeting[asked]
