"""Who takes whose records from whom: one parent per origin, chosen by link state.

Theory of operation
-------------------
Vertices are sites. `link:<site>` in the store says whom a site hears: the only input to paths; for a site's own links the live
connections count, never the store's copy. A parent is a neighbour at the least cost to the origin, so on one graph every parent
is strictly nearer and no loop can be. While views differ a loop only starves, and the watchdog leaves it. Rows, with their
whole path, are output: told to neighbours, who use them to judge whether waiting, or an optional move, is safe.

R1  depth = 1 exactly when via is the source
R2  via is a connected neighbour that accepted
R3  the path is via and then the path via told, and never contains the subscriber
R4  at most one row per source
R5  a site has no row for itself

Order of events. A link comes up: ask for its site's own records; when accepted, publish, tell, and look at the other origins.
A path is lost: withdraw it from the store and from the neighbours, then move at once, and tell the new row when it is accepted.
A shorter path: wait for the hold-down, but only while the present chain validates; move gently, tell when accepted. Another
path or cost through the same parent: tell, no move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from trunkline.topology import why as explaining
from trunkline.topology.balance import Balance
from trunkline.topology.choosing import Outlook, Verdict, forced, verdict
from trunkline.topology.damping import Damping
from trunkline.topology.effects import Effect, Manner, Move, Publish, TakeFromAny, Tell
from trunkline.topology.graph import Graph
from trunkline.topology.links import HOP, LinkRow
from trunkline.topology.messages import Progress, Told
from trunkline.topology.neighbours import Link, Neighbour, NeighbourView, view
from trunkline.topology.pacing import Pacing
from trunkline.topology.rows import Row
from trunkline.topology.settings import Settings
from trunkline.topology.table import Table, Taking
from trunkline.topology.telling import Telling, whole
from trunkline.topology.violations import violations
from trunkline.topology.watchdog import Stall, Watchdog

COUNTED = {Manner.FIRST: "first", Manner.FORCED: "forced", Manner.GENTLE: "voluntary"}


class Topology:
    def __init__(self, site: str, settings: Settings | None = None, random: Callable[[], float] = lambda: 0.5) -> None:
        """`random` spreads the sites that rebalance; nothing else is left to chance."""
        self.site, self.settings, self.random = site, settings or Settings(), random
        self.counts: Counter[str] = Counter()
        self.damping = Damping(self.settings.first_damping, self.settings.longest_damping)
        self.table = Table(site, self.settings, Graph(site))
        self._incarnation: int | None = None
        self._reset()

    def _reset(self) -> None:
        times = self.settings
        self._said: LinkRow | None = None
        self._pacing = Pacing(times.debounce_seconds, times.longest_debounce)
        self._telling = Telling(times)
        self._watchdog = Watchdog(times.heartbeat_seconds * times.stall_heartbeats)
        self._balance = Balance(times.rebalance_seconds, self.random)
        self._moves: list[Effect] = []
        self._holds: dict[str, float] = {}
        self._lost: set[str] = set()  # a parent is to be found
        self._dirty: set[str] = set()
        self._dirty_links = False
        self._beat = self._ripe = float("-inf")

    @property
    def rows(self) -> Mapping[str, Row]:
        return self.table.rows

    # -- events

    def begin(self, incarnation: int, links: Mapping[str, LinkRow], now: float) -> list[Effect]:
        """A leader begins: nothing is taken from anybody yet, whatever its predecessor took."""
        before = self.table.links
        self._incarnation = incarnation
        self.table = Table(self.site, self.settings, Graph(self.site))
        self._reset()
        for site, row in links.items():
            self.table.graph.put(site, row)
        effects = self._say()
        for link in before.values():
            effects += self.link_up(link.neighbour, now)
            self.table.links[link.site].remember(link)
        return effects

    def link_up(self, neighbour: Neighbour, now: float) -> list[Effect]:
        site = neighbour.site
        known = self.table.links.get(site)
        if known is not None and known.neighbour == neighbour:
            known.greeted = False
            return [Tell(site, whole(self.rows))] if neighbour.capable and self._incarnation is not None else []
        effects = self.link_down(site, now) if known is not None else []
        cost = max(HOP, self.settings.costs.get(site, HOP))
        self.table.links[site] = link = Link(neighbour, now, cost, now + self.damping.delay(site, now))
        self._links_changed(self.table.graph.incarnation(site, neighbour.incarnation), now)
        if self._incarnation is None:
            return effects
        if neighbour.capable:
            effects.append(Tell(site, whole(self.rows)))
        self.counts["damped"] += not self._let_in(link, now)
        return effects + self._effects(now)

    def link_down(self, site: str, now: float) -> list[Effect]:
        link = self.table.links.pop(site, None)
        if link is None:
            return []
        self.damping.lost(site, now)
        self.table.barred = {key: needed for key, needed in self.table.barred.items() if key[1] != site}
        if not link.asked and not link.joined:
            return self._effects(now)
        self._lose(site, now)
        withdrawn = self._say() + self._telling.rows(self.rows, self.table.links.values(), now)
        self._compute(now)
        return withdrawn + self._effects(now)

    def _lose(self, via: str, now: float) -> None:
        """Every row and every subscription through this neighbour."""
        for origin in [o for o, taking in self.table.takings.items() if taking.via == via]:
            del self.table.takings[origin]
            self._lost.add(origin)
            self._drop_row(origin, now)
        for origin in [o for o, row in self.rows.items() if row.via == via]:
            self._drop_row(origin, now)
        self._dirty_links = True

    def set_links(self, changed: Mapping[str, LinkRow | None], now: float) -> list[Effect]:
        for site, row in changed.items():
            self._links_changed(self.table.graph.put(site, row), now)
        return self._effects(now)

    def told(self, site: str, message: Told, now: float) -> list[Effect]:
        link = self.table.links.get(site)
        if link is None:
            return []
        for origin in link.hear(message):
            taking = self.table.takings.get(origin)
            if taking is None or taking.via == site or origin in self._holds:
                self._look_at(origin, now)
        return self._effects(now)

    def progress(self, site: str, message: Progress, now: float) -> list[Effect]:
        link = self.table.links.get(site)
        if link is None:
            return []
        link.cursors.update(message.cursors)
        link.heads.update(message.heads)
        link.children.update(message.children)
        for origin in message.heads.keys() - self.table.graph.named - self.table.takings.keys():
            self._look_at(origin, now)
        return self._effects(now)

    def subscribed(self, origin: str, via: str, now: float) -> list[Effect]:
        """The parent accepted; of several that were asked, the one that stays."""
        taking = self.table.takings.get(origin)
        if taking is not None and via != taking.via and via in taking.anyone[1] and via in self.table.links:
            taking.via, taking.since = via, now
            self._look_at(origin, now)  # it need not be the nearest
        if taking is None or via != taking.via:
            return []
        taking.accepted = True
        link = self.table.links[via]
        if origin == via and not link.joined:
            self._join(link, now)
        self._refresh(origin, now)
        return self._effects(now, patient=True)

    def tick(self, now: float, cursors: Mapping[str, int], head: int, withheld: Collection[str]) -> list[Effect]:
        if self._incarnation is None:
            return []
        self.table.cursors = dict(cursors)
        for link in self.table.links.values():
            self._let_in(link, now)
        beats = now >= self._beat + self.settings.heartbeat_seconds
        ripe = now - self.settings.hold_seconds
        for origin in [o for o, since in self._holds.items() if since <= ripe and (beats or since > self._ripe)]:
            self._decide(origin, now)
        self._ripe = ripe
        if not beats:
            return self._effects(now)
        self._beat = now
        self._watch(withheld, now)
        self._look_at_senders_of_all(now)
        if self.settings.rebalance and self._balance.is_due(now):
            self._rebalance(now)
        return self._effects(now) + self._telling.again(self.rows, self.table.links.values(), now) + self._say_progress(head)

    # -- neighbours

    def _let_in(self, link: Link, now: float) -> bool:
        """When it is no longer damped, or there is no other way to it: ask for its records. True when it counts."""
        if link.asked or link.joined or not link.neighbour.hears:
            return True
        cost, nearest = self.table.nearest(link.site)
        if now < link.counts_from and nearest:
            return False
        if nearest and (cost <= link.cost or self.table.sender_of_all(link.site) is not None):
            self._join(link, now)
        else:
            link.asked = True
            self._take(link.site, link.site, Manner.GENTLE if link.site in self.table.takings else Manner.FIRST, now)
        return True

    def _join(self, link: Link, now: float) -> None:
        link.joined = True
        self._links_changed(True, now)

    # -- computing

    def _links_changed(self, changed: bool, now: float) -> None:
        if changed:
            self._dirty_links = True
            self._pacing.want(now)

    def _look_at(self, origin: str, now: float) -> None:
        if origin != self.site:
            self._dirty.add(origin)
            self._pacing.want(now)

    def _compute(self, now: float) -> None:
        self._pacing.done(now)
        self.counts["computed"] += 1
        origins = self._dirty | self._lost
        if self._dirty_links:
            origins.update(self.table.unsettled(), self._holds)
        self._dirty, self._dirty_links = set(), False
        for origin in sorted(origins):
            self._decide(origin, now)
        if self.table.graph.expired:
            self.table.graph.forget_expired(site for row in self.rows.values() for site in row.path)

    def _decide(self, origin: str, now: float) -> None:
        taking = self.table.takings.get(origin)
        if taking is not None and taking.via == origin and not self.table.links[origin].joined:
            return
        outlook = self.table.outlook(origin)
        match verdict(outlook):
            case Verdict.KEEP:
                self._holds.pop(origin, None)
                self._refresh(origin, now)
            case Verdict.FORCED:
                self._force(origin, outlook, now)
            case Verdict.WAIT:
                self._refresh(origin, now)
                self._wait(origin, outlook, now)

    def _force(self, origin: str, outlook: Outlook, now: float) -> None:
        target = forced(outlook)
        self._holds.pop(origin, None)
        if target is not None and target not in outlook.nearest:
            self._holds[origin] = now
        if target is not None and target == outlook.present:
            self._refresh(origin, now)
            return
        had_parent = outlook.present is not None or origin in self._lost
        self._drop_row(origin, now)
        if target is not None:
            self._take(origin, target, Manner.FORCED if had_parent else Manner.FIRST, now)
        elif had_parent:
            self._lack(origin, for_now=bool(outlook.nearest))

    def _lack(self, origin: str, for_now: bool) -> None:
        """No parent. For now: all that are near lead back here, and will say otherwise soon."""
        self.table.takings.pop(origin, None)
        self._watchdog.forget(origin)
        if for_now:
            self._lost.add(origin)
        else:
            self._lost.discard(origin)
            self._moves.append(Move(origin, None, Manner.FORCED))

    def _wait(self, origin: str, outlook: Outlook, now: float) -> None:
        """A shorter path is taken when it was there for the hold-down, is fed, and does not run through this site."""
        since = self._holds.setdefault(origin, now)
        fed = (via for via in outlook.nearest if self.table.is_fed(origin, via))
        if all(self.table.is_barred(origin, via) for via in outlook.nearest):
            self._holds[origin] = now
        elif now >= since + self.settings.hold_seconds and (target := next(fed, None)) is not None:
            del self._holds[origin]
            self._take(origin, target, Manner.GENTLE, now)

    def _take(self, origin: str, via: str, manner: Manner, now: float, counted: str = "") -> None:
        self._lost.discard(origin)
        self.table.takings[origin] = Taking(via, manner, now)
        self._watchdog.forget(origin)
        self.counts[counted or COUNTED[manner]] += 1
        self._moves.append(Move(origin, via, manner))

    def _drop_row(self, origin: str, now: float) -> None:
        if self.table.rows.pop(origin, None) is not None:
            self._telling.changed(origin, now)

    def _refresh(self, origin: str, now: float) -> None:
        """The row of a parent that accepted, as it is now."""
        taking = self.table.takings.get(origin)
        row = self.table.row(origin, taking.via) if taking is not None and taking.accepted else None
        if row is not None and row != self.rows.get(origin):
            self.table.rows[origin] = row
            self._telling.changed(origin, now)

    # -- heartbeats

    def _watch(self, withheld: Collection[str], now: float) -> None:
        """All that is taken; but a neighbour's own records wait for its link to live or die."""
        for origin, taking in list(self.table.takings.items()):
            cursor, head = self.table.cursors.get(origin, 0), self.table.head(origin)
            if taking.anyone[1] and cursor >= min(head, taking.anyone[0] + 1):  # it gets on: one is enough
                taking.anyone = 0, ()
                self._moves.append(Move(origin, taking.via, Manner.FORCED))
            if origin in withheld or head <= cursor or not self.table.links[taking.via].joined:
                self._watchdog.forget(origin)
                continue
            sources = self.table.sources(origin)
            match self._watchdog.look(origin, cursor, max(sources.values(), default=0), now):
                case Stall.NEIGHBOUR_AHEAD:
                    self._leave(origin, taking, max(sources, key=lambda v: (sources[v], v != taking.via)), now)
                case Stall.LOG_AHEAD:
                    self._ask_all(origin, taking, tuple(sources))

    def _leave(self, origin: str, taking: Taking, ahead: str, now: float) -> None:
        """For the neighbour that is furthest; if that is the parent itself, it is asked once more."""
        accepted = taking.accepted and taking.via == ahead
        if taking.via != ahead:
            self.table.barred[origin, taking.via] = self.table.cursors.get(origin, 0) + 1
            self._drop_row(origin, now)
        self._take(origin, ahead, Manner.FORCED, now, counted="watchdog")
        self._holds[origin] = now
        self.table.takings[origin].accepted = accepted

    def _ask_all(self, origin: str, taking: Taking, sites: tuple[str, ...]) -> None:
        cursor = self.table.cursors.get(origin, 0)
        if sites != (taking.via,) and taking.anyone != (cursor, sites):
            taking.anyone = cursor, sites
            self.counts["asked_all"] += 1
            self._moves.append(TakeFromAny(origin, sites))

    def _look_at_senders_of_all(self, now: float) -> None:
        for origin in self.table.sent_unasked():
            taking = self.table.takings.get(origin)
            if self.table.sender_of_all(origin) != (taking.via if taking is not None else None):
                self._look_at(origin, now)

    def _rebalance(self, now: float) -> None:
        move = self._balance.move(self.table.ties(), lambda via, origin: self.table.links[via].children.get(origin, 0))
        if move is not None and self.table.is_fed(*move):
            self._take(*move, Manner.GENTLE, now)

    def _say_progress(self, head: int) -> list[Effect]:
        heads = {**self.table.heads(), self.site: head}
        return self._telling.progress(self.table.cursors, heads, self.table.children(), self.table.links.values())

    # -- what the host is to do

    def _effects(self, now: float, patient: bool = False) -> list[Effect]:
        """What the store and the neighbours are to know comes before the moves."""
        if self._incarnation is None:
            return []
        if self._pacing.is_due(now):
            self._compute(now)
        effects = self._say()
        if not patient or now >= self._telling.at + self.settings.debounce_seconds:
            effects += self._telling.rows(self.rows, self.table.links.values(), now)
        effects += self._telling.published(self.rows, len(self.table.graph.rows) + 1, now)
        moves, self._moves = self._moves, []
        return effects + moves

    def _say(self) -> list[Effect]:
        before, self._said = self._said, self.table.own_row(self._incarnation or 0)
        return [Publish(self._said)] if self._said != before else []

    @property
    def due(self) -> float:
        """When `tick` has something to do, if nothing happens before."""
        times = [self._beat + self.settings.heartbeat_seconds]
        times += [at for at in (self._pacing.due, self._telling.publish_at) if at is not None]
        times += [link.counts_from for link in self.table.links.values() if link.is_damped]
        times += [since + self.settings.hold_seconds for since in self._holds.values() if since > self._ripe]
        times += [self._telling.at + self.settings.debounce_seconds] if self._telling.waiting else []
        return min(times)

    # -- looking

    def default_carrier(self) -> str | None:
        """Whom to take an origin from that no link row ever named."""
        return self.table.default_carrier()

    def why(self, origin: str) -> explaining.Why:
        return explaining.explain(self.table, origin, self._holds.get(origin), self.settings.hold_seconds)

    def neighbours(self) -> tuple[NeighbourView, ...]:
        return tuple(view(link, self.damping.losses(link.site, link.since)) for link in self.table.links.values())

    def check(self) -> list[str]:
        """Violations of R1–R5 right now."""
        return violations(self.table, self._dirty)
