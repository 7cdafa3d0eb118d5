"""Stores on the simulated network: virtual time, lost frames, cuts, crashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trunkline.net.channels import Channel
from trunkline.net.simhost import Greeting, Outlet
from trunkline.net.simnet import Note, SimNet
from trunkline.store.area import Area
from trunkline.store.filters import Filter
from trunkline.store.messages import CODEC, Message, Send
from trunkline.store.settings import Settings
from trunkline.store.values import sealed
from trunkline.store.watch import Watch

QUICK = Settings(first_backoff=0.2, longest_backoff=2.0, answer_seconds=1.0, sync_seconds=3.0)


class SimStore:
    """One process: an area, with what it was told to persist since it was started."""

    def __init__(self, fleet: SimStores, name: str, outlet: Outlet, now: float) -> None:
        self.outlet, self.now = outlet, now
        self.area = Area(name, "fleet", outlet.random.random, fleet.settings)
        self.watch = Watch(Filter())
        self.area.watch(self.watch)
        for peer in fleet.peers_of(name):
            self.area.add_peer(peer, now)
        self.area.peers_known(now)

    def greeting(self) -> Greeting:
        return Greeting()

    def link_up(self, peer: str, mine: Greeting, theirs: Greeting, now: float) -> None:
        self.say(self.area.link_up(peer, now))

    def link_down(self, peer: str, now: float) -> None:
        self.say(self.area.link_down(peer, now))

    def message(self, peer: str, channel: Channel, body: bytes, now: float) -> None:
        self.say(self.area.receive(peer, CODEC.decode(body), now))

    def tick(self, now: float) -> None:
        self.now = now
        self.say(self.area.tick(now))

    def say(self, sends: Iterable[Send]) -> None:
        for send in sends:
            self.outlet.send(send.peer, Channel.STORE, CODEC.encode(send.message))

    def put(self, key: str, data: bytes, now: float, version: int = 1, ttl_ms: int = 300_000) -> None:
        sends, refused = self.area.put({key: sealed(key, version, self.area.node, data, ttl_ms)}, now)
        assert not refused, refused
        self.say(sends)


class SimStores:
    def __init__(self, seed: int, links: Sequence[tuple[str, str]], settings: Settings = QUICK, loss: float = 0.0) -> None:
        self.net = SimNet(seed, loss)
        self.settings, self.links = settings, links
        self.names = list(dict.fromkeys(name for link in links for name in link))
        self.frames: list[tuple[float, str, str, Message]] = []
        """When it arrived, from, to, what."""
        self.net.observer = self._note
        for name in self.names:
            self.net.add(name, lambda outlet, now, name=name: SimStore(self, name, outlet, now))  # type: ignore[misc]
        for link in links:
            self.net.wires.connect(*link)

    def __getitem__(self, name: str) -> SimStore:
        process = self.net.hosts[name].process
        assert isinstance(process, SimStore)
        return process

    def peers_of(self, name: str) -> list[str]:
        return [b if name == a else a for a, b in self.links if name in (a, b)]

    def run(self, seconds: float) -> None:
        self.net.run(self.net.now + seconds)

    def runs_until_equal(self, seconds: float) -> bool:
        return self.net.run(self.net.now + seconds, done=self.equal)

    def contents(self, name: str) -> dict[str, tuple[int, str, bytes | None]]:
        return {key: (v.version, v.originator, v.data) for key, v in self[name].area.table.values()}

    def equal(self) -> bool:
        living = [name for name in self.names if self.net.hosts[name].process is not None]
        return all(self.contents(name) == self.contents(living[0]) for name in living)

    def cut(self, *links: tuple[str, str]) -> None:
        self.net.wires.cut(way for a, b in links for way in ((a, b), (b, a)))

    def mend(self, *links: tuple[str, str]) -> None:
        self.net.wires.mend(way for a, b in links for way in ((a, b), (b, a)))

    def _note(self, note: Note) -> None:
        if note.kind == "frame":
            self.frames.append((note.at, note.who, note.to, CODEC.decode(note.body)))
