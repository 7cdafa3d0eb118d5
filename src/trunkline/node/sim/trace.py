"""The trace for people: one line per thing that happened, messages by what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trunkline.net.channels import Channel
from trunkline.net.simnet import Note
from trunkline.node.sim.faults import ways_of
from trunkline.node.sim.setup import site_of
from trunkline.store import messages as store
from trunkline.store.values import Value
from trunkline.trunk import messages
from trunkline.trunk.log import Applied, Entry

SHOWN = 4


def _listed(things: Iterable[str]) -> str:
    found = list(things)
    rest = f" +{len(found) - SHOWN}" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + rest if found else "nothing"


def _values(values: Mapping[str, Value]) -> str:
    return _listed(f"{key} v{_version(v.version)}{_state(v)}" for key, v in values.items())


def _state(value: Value) -> str:
    return " refreshed" if value.data is None else " erased" if value.erased else ""


def _version(version: int) -> str:
    """Of a link row: incarnation and counter."""
    return f"{version >> 32}.{version & 0xFFFFFFFF}" if version >> 32 else str(version)


def _wants(wants: Mapping[str, Applied]) -> str:
    return _listed(f"{site} after {_positions(applied)}" for site, applied in wants.items())


def _positions(applied: Applied) -> str:
    return "/".join(f"{client}:{p.seq}" for client, p in applied.clients.items()) or "0"


def _entries(entries: Iterable[Entry]) -> str:
    return _listed(f"{e.seq} {e.client}>{'+'.join(e.destinations)}" for e in entries)


_SAID: dict[type[Any], Callable[[Any], str]] = {
    store.Publish: lambda m: f"publish {_values(m.values)} by way of {' '.join(m.path)}",
    store.AskRoot: lambda m: f"sync #{m.id}: root {m.root:016x}?",
    store.AskLeaves: lambda m: f"sync #{m.id}: leaves of ranges {_listed(map(str, m.ranges))}?",
    store.AskKeys: lambda m: f"sync #{m.id}: leaves {_listed(map(str, m.leaves))}, here {_listed(m.headers)}?",
    store.Same: lambda m: f"sync #{m.id}: the same",
    store.Ranges: lambda m: f"sync #{m.id}: ranges",
    store.Leaves: lambda m: f"sync #{m.id}: leaves of {_listed(map(str, m.sums))}",
    store.Difference: lambda m: f"sync #{m.id}: {_values(m.values)}; wants {_listed(m.wanted)}",
    store.Refused: lambda m: f"sync #{m.id}: refused, {m.reason}",
    messages.Subscribe: lambda m: f"subscribe #{m.id} to {m.origin}: {_wants(m.wants)}",
    messages.Stop: lambda m: f"stop #{m.id} of {m.origin}",
    messages.Batch: lambda m: (
        f"batch #{m.id} of {m.origin}, {m.prev} to {m.upto.seq}{' opens' if m.opens else ''}: {_entries(m.entries)}"
    ),
    messages.Taken: lambda m: f"taken #{m.id} of {m.origin} up to {m.seq}",
    messages.Ack: lambda m: (
        f"ack to {m.origin}: {m.destination} has {_positions(Applied(m.log_id, m.clients))} (generation {m.generation})"
    ),
    messages.Reset: lambda m: f"reset #{m.id} of {m.origin} for {m.destination}",
}
_CODECS: dict[Channel, Callable[[bytes], Any]] = {
    Channel.STORE: store.CODEC.decode,
    Channel.TRUNK: messages.CODEC.decode,
}


def said(channel: Channel, body: bytes) -> str:
    """What a frame says."""
    message = _CODECS[channel](body)
    return _SAID[type(message)](message)


_FATES = {"frame": "", "lost": "LOST ", "swallowed": "SWALLOWED ", "late": "DROPPED (old connection) "}
_EVENTS: dict[str, Callable[[Note], str]] = {
    "link": lambda n: f"link {n.connection} with {n.to} is up",
    "unlink": lambda n: f"link {n.connection} with {n.to} is down: {n.text}",
    "start": lambda n: "starts",
    "crash": lambda n: "is gone",
    "pause": lambda n: "is paused",
    "resume": lambda n: f"goes on, {n.text}",
    "write": lambda n: f"its application writes {n.text}",
    "change": lambda n: f"its client asks: {n.text}",
    "read": lambda n: f"its watcher reads {n.text}",
    "does": lambda n: n.text,
}
_MARKED: dict[str, Callable[[Note], str]] = {
    "fault": lambda n: f"--- {n.text}",
    "over": lambda n: f"--- end of {n.text} {n.who}",
    "calm": lambda n: "=== the faults are over",
    "broken": lambda n: f"!!! {n.who}: {n.text}",
}


def line(note: Note) -> str:
    time = f"{note.at:10.4f}  "
    if note.channel is not None:
        return f"{time}{note.who} > {note.to}  [{note.connection}] {_FATES[note.kind]}{said(note.channel, note.body)}"
    if note.kind in _MARKED:
        return time + _MARKED[note.kind](note)
    return f"{time}{note.who}  {_EVENTS[note.kind](note)}"


def concerns(note: Note, names: frozenset[str]) -> bool:
    """Whether a note is about one of these hosts or sites; what concerns everybody concerns them."""
    if not names or note.kind in ("calm", "broken"):
        return True
    ends = [name for way in ways_of(note.who) for name in way] if ">" in note.who else note.who.split(",")
    about = {*ends, note.to}
    return not names.isdisjoint(about | {site_of(name) for name in about})
