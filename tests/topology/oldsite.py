"""A peer without the capability, as its neighbours see it: it tells no rows, and sends every record to everybody unasked.

It takes each neighbour's own records in the old way, keeps all it ever got, and sends every origin's to every neighbour that
said from where (`SubscribeAll`), in order, each once.
"""

from __future__ import annotations

from trunkline.core.ids import START, Position
from trunkline.net.channels import Channel
from trunkline.net.simhost import Greeting, Outlet
from trunkline.node.sim.database import Database
from trunkline.node.sim.setup import Setup
from trunkline.node.sim.site import SiteSettings
from trunkline.node.sim.trace import message_of
from trunkline.trunk import messages
from trunkline.trunk.log import Applied, Entry
from trunkline.trunk.messages import Batch, Subscribe, SubscribeAll, Taken

CLIENTS = ("status",)
SIGN_SECONDS = 1.0


class OldSite:
    def __init__(
        self, host: str, databases: dict[str, Database], outlet: Outlet, now: float, setup: Setup, settings: SiteSettings
    ) -> None:
        self.host, self.databases, self.outlet = host, databases, outlet
        self.behind = False
        """It takes records in, and hands none on."""
        self._kept: dict[str, list[Entry]] = {}
        self._upto: dict[str, Position] = {}
        self._sent: dict[tuple[str, str], int] = {}
        self._ids: dict[str, int] = {}
        self._said_at = 0.0

    def greeting(self) -> Greeting:
        return Greeting(incarnation=1, capable=False)

    def link_up(self, peer: str, mine: Greeting, theirs: Greeting, now: float) -> None:
        self._ids[peer] = len(self._ids) + 1
        reached = {CLIENTS[0]: self._upto[peer]} if peer in self._upto else {}
        wants = {self.host: Applied(f"log-{peer}" if reached else "", reached)}
        self._say(peer, Subscribe(self._ids[peer], peer, wants))

    def link_down(self, peer: str, now: float) -> None:
        self._sent = {key: seq for key, seq in self._sent.items() if key[0] != peer}

    def message(self, peer: str, channel: Channel, body: bytes, now: float) -> None:
        if channel not in (Channel.TRUNK, Channel.SIGNAL):
            return
        message = message_of(channel, body)
        if isinstance(message, SubscribeAll):
            for origin in {*message.positions, *self._kept, self.host} - {peer}:
                asked = message.positions.get(origin)
                reached = max((p.seq for p in asked.clients.values()), default=0) if asked is not None else 0
                if asked is not None or (peer, origin) not in self._sent:
                    self._sent[peer, origin] = reached
            self._hand_on(now, sign=True)
        elif isinstance(message, Batch) and message.id == self._ids.get(peer) and message.origin == peer:
            self._take(peer, message)
            self._hand_on(now)

    def _take(self, peer: str, batch: Batch) -> None:
        kept, at = self._kept.setdefault(batch.origin, []), self._upto.get(batch.origin, START)
        kept.extend(entry for entry in batch.entries if entry.seq > at.seq)
        self._upto[batch.origin] = batch.upto
        for other in self._ids.keys() - {peer}:
            self._sent.setdefault((other, batch.origin), 0)
        self._say(peer, Taken(batch.id, batch.origin, batch.upto.seq))

    def tick(self, now: float) -> None:
        database = self.databases[self.host]
        if database.unstamped:
            self._upto[self.host] = database.stamp()
            self._kept[self.host] = list(database.log.read(0, database.log.head().seq + 1, frozenset(self._ids)).entries)
            for other in self._ids:
                self._sent.setdefault((other, self.host), 0)
        sign = now - self._said_at >= SIGN_SECONDS
        self._said_at = now if sign else self._said_at
        self._hand_on(now, sign)

    def _hand_on(self, now: float, sign: bool = False) -> None:
        for (peer, origin), sent in () if self.behind else list(self._sent.items()):
            upto = self._upto.get(origin, START)
            if upto.seq > sent or (sign and upto.seq == sent):
                entries = tuple(e for e in self._kept.get(origin, ()) if sent < e.seq <= upto.seq)
                self._sent[peer, origin] = upto.seq
                self._say(peer, Batch(0, origin, f"log-{origin}", sent, entries, upto, CLIENTS, False))

    def _say(self, peer: str, message: messages.TrunkMessage) -> None:
        self.outlet.send(peer, Channel.TRUNK, messages.CODEC.encode(message))
