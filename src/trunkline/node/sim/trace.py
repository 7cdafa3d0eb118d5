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
from trunkline.topology import messages as topology
from trunkline.topology.rows import Row
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


def _row(row: Row) -> str:
    return f"{row.source} via {'>'.join(row.path)}{''.join(f' {flag}' for flag in row.flags)}"


def _counts(counts: Mapping[str, int]) -> str:
    return _listed(f"{site}:{count}" for site, count in counts.items())


_LANES = {messages.Lane.LIVE: "", messages.Lane.CATCH_UP: " (catching up)"}
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
    messages.Subscribe: lambda m: (
        f"subscribe #{m.id} to {m.origin}{_LANES[m.lane]}: {_wants(m.wants)}"
        + (f"; goes on from #{m.continues} for {_listed(m.kept)}" if m.continues else "")
    ),
    messages.SubscribeAll: lambda m: f"send everything: {_wants(m.positions)}",
    messages.Stop: lambda m: f"stop #{m.id} of {m.origin}",
    messages.Stopped: lambda m: f"stopped #{m.id} of {m.origin} at {m.upto}",
    messages.Batch: lambda m: (
        f"batch #{m.id} of {m.origin}, {m.prev} to {m.upto.seq}{' opens' if m.opens else ''}: {_entries(m.entries)}"
    ),
    messages.Taken: lambda m: f"taken #{m.id} of {m.origin} up to {m.seq}",
    messages.Ack: lambda m: (
        f"ack to {m.origin}: {m.destination} has {_positions(Applied(m.log_id, m.clients))} (generation {m.generation})"
    ),
    topology.Told: lambda m: f"{'all ' if m.full else ''}rows: {_listed(map(_row, m.rows))}; none for {_listed(m.gone)}",
    topology.Progress: lambda m: f"has {_counts(m.cursors)}; heads {_counts(m.heads)}",
    messages.Vector: lambda m: (
        f"acks to {m.origin}: all of {_listed(m.members) if m.members is not None else f'set {m.version}'} have "
        f"{_positions(Applied(m.log_id, m.least))}, except {_listed(m.exceptions)}"
    ),
    messages.Awaited: lambda m: f"{m.origin} waits for {_listed(m.destinations)}",
    messages.Reset: lambda m: f"reset #{m.id} of {m.origin} for {m.destination}",
    messages.Gap: lambda m: f"gap #{m.id} of {m.origin} for {m.destination}: it begins after {m.lowest.seq}",
    messages.Send: lambda m: f"{len(m.body)} bytes from {m.source} to {m.to}",
}
_CODECS: dict[Channel, Callable[[bytes], Any]] = {
    Channel.STORE: store.CODEC.decode,
    Channel.TRUNK: messages.CODEC.decode,
    Channel.SIGNAL: messages.CODEC.decode,
    Channel.TOPOLOGY: topology.CODEC.decode,
}


def message_of(channel: Channel, body: bytes) -> Any:
    return _CODECS[channel](body)


def said(channel: Channel, body: bytes) -> str:
    """What a frame says."""
    message = message_of(channel, body)
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
