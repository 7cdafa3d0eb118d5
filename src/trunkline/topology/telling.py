"""What the neighbours and the store were told, and what is new since: each hears of a change once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trunkline.topology.effects import Effect, PublishRows, Tell
from trunkline.topology.messages import Progress, Told
from trunkline.topology.neighbours import Link
from trunkline.topology.rows import Row
from trunkline.topology.settings import PublishRowsWhen, Settings

Vector = dict[str, int]


def whole(rows: Mapping[str, Row]) -> Told:
    return Told(tuple(rows[origin] for origin in sorted(rows)), full=True)


@dataclass
class Telling:
    settings: Settings
    at: float = float("-inf")
    """When rows were last told."""
    publish_at: float | None = None
    _all_at: float | None = None
    _changed: set[str] = field(default_factory=set)
    _progress: tuple[Vector, Vector, Vector] = field(default_factory=lambda: ({}, {}, {}))
    _published: tuple[Row, ...] | None = None

    # -- rows

    def changed(self, origin: str, now: float) -> None:
        self._changed.add(origin)
        if self.publish_at is None:
            self.publish_at = now + self.settings.debounce_seconds

    @property
    def waiting(self) -> bool:
        return bool(self._changed)

    def rows(self, rows: Mapping[str, Row], links: Iterable[Link], now: float) -> list[Effect]:
        if not self._changed:
            return []
        changed, self._changed, self.at = sorted(self._changed), set(), now
        told = Told(tuple(rows[o] for o in changed if o in rows), tuple(o for o in changed if o not in rows))
        return [Tell(link.site, told) for link in links if link.neighbour.capable]

    def again(self, rows: Mapping[str, Row], links: Iterable[Link], now: float) -> list[Effect]:
        """Everything, from time to time: a delta may have been lost."""
        if self._all_at is None:
            self._all_at = now
        if now < self._all_at + self.settings.repeat_seconds:
            return []
        self._all_at = now
        capable = [link for link in links if link.neighbour.capable]
        for link in capable:
            link.greeted = False
        return [Tell(link.site, whole(rows)) for link in capable]

    def published(self, rows: Mapping[str, Row], sites: int, now: float) -> list[Effect]:
        """For people, while the fleet is small enough."""
        if self.publish_at is None or now < self.publish_at:
            return []
        self.publish_at = None
        small = sites <= self.settings.publish_rows_sites
        wanted = {PublishRowsWhen.AUTO: small, PublishRowsWhen.ALWAYS: True, PublishRowsWhen.NEVER: False}
        now_published = tuple(rows[o] for o in sorted(rows)) if wanted[self.settings.publish_rows] else None
        if now_published == self._published:
            return []
        self._published = now_published
        return [PublishRows(now_published)]

    # -- progress

    def progress(self, cursors: Vector, heads: Vector, children: Vector, links: Iterable[Link]) -> list[Effect]:
        vectors = cursors, heads, children
        news = [{k: n for k, n in v.items() if old.get(k) != n} for v, old in zip(vectors, self._progress, strict=True)]
        news[2] |= {origin: 0 for origin in self._progress[2] if origin not in children}
        self._progress = vectors
        effects: list[Effect] = []
        for link in links:
            if link.neighbour.capable and (not link.greeted or any(news)):
                effects.append(Tell(link.site, Progress(*(news if link.greeted else vectors))))
                link.greeted = True
        return effects
