"""A history: everything that is done to a universe, drawn up front, one line of text per event.

    3.250 crash leaf for 4.000          a fault has a kind, a subject, a length and sometimes an amount
    5.000 cut leaf>relay for 2.500      a subject is a host or disk, a way (a>b), a link (a<>b) or a group (a,b)
    5.100 slow hub<>relay for 3.000 by 0.800
    6.000 write leaf status>hub,relay policy>*      one transaction: client>destinations per message
    7.000 put b app:k1 of 3 for 2.000   a client of node b writes a key once, to live for 2 seconds; `of` tells its bytes apart
    7.100 persist b app:k1 of 4         b keeps the key at other bytes, with the store's usual ttl
    7.200 set c app:k2 of 5 for ever    c keeps a key until somebody else writes it, with an infinite ttl
    7.300 unset b app:k1 of 6           written once more and left to expire; also: clear b app:k1, erase b app:k1
    7.400 read b 5                      b's watcher takes up to five events

A fault carries its own end, so any event can be taken away and the rest still means the same. Times are in milliseconds at
the finest: what is printed is exactly what was run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from pathlib import Path

from trunkline.core.errors import Invalid

FORMAT = "# trunkline sim history 1"


@dataclass(frozen=True)
class Fault:
    at: float
    kind: str
    subject: str
    seconds: float = 0.0
    amount: float = 0.0

    @property
    def end(self) -> float:
        return self.at + self.seconds

    def __str__(self) -> str:
        length = f" for {self.seconds:.3f}" if self.seconds else ""
        amount = f" by {self.amount:.3f}" if self.amount else ""
        return f"{self.at:.3f} {self.kind} {self.subject}{length}{amount}"


@dataclass(frozen=True)
class Write:
    """One transaction of a site's application: (client, destinations) per message."""

    at: float
    site: str
    messages: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def end(self) -> float:
        return self.at

    def __str__(self) -> str:
        return " ".join([f"{self.at:.3f} write {self.site}", *(f"{c}>{','.join(d)}" for c, d in self.messages)])


class Verb(StrEnum):
    """What a client does to a key."""

    PUT = "put"
    SET = "set"
    PERSIST = "persist"
    UNSET = "unset"
    CLEAR = "clear"
    ERASE = "erase"


EVER = inf


@dataclass(frozen=True)
class Change:
    """A client of a node changes a key."""

    at: float
    verb: Verb
    node: str
    key: str
    number: int = 0
    """Tells its bytes from all others'; 0: it has none."""
    seconds: float = 0.0
    """To live; 0: as usual, EVER: no end."""

    @property
    def end(self) -> float:
        return self.at

    @property
    def data(self) -> bytes:
        return f"{self.number} of {self.node}".encode()

    @property
    def what(self) -> str:
        number = f" of {self.number}" if self.number else ""
        length = " for ever" if self.seconds == EVER else f" for {self.seconds:.3f}" if self.seconds else ""
        return f"{self.key}{number}{length}"

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.verb} {self.node} {self.what}"


@dataclass(frozen=True)
class Read:
    """A node's watcher takes some events."""

    at: float
    node: str
    most: int

    @property
    def end(self) -> float:
        return self.at

    def __str__(self) -> str:
        return f"{self.at:.3f} read {self.node} {self.most}"


Event = Fault | Write | Change | Read

_TIME = r"(?P<at>\d+(?:\.\d+)?)"
_LINES: tuple[tuple[re.Pattern[str], Callable[[dict[str, str]], Event]], ...] = (
    (
        re.compile(rf"{_TIME} write (?P<site>\S+)(?P<messages>(?: [^\s>]+>\S+)+)"),
        lambda f: Write(float(f["at"]), f["site"], tuple(map(_message, f["messages"].split()))),
    ),
    (
        re.compile(
            rf"{_TIME} (?P<verb>{'|'.join(Verb)}) (?P<node>\S+) (?P<key>\S+)"
            r"(?: of (?P<number>\d+))?(?: for (?P<seconds>[\d.]+|ever))?"
        ),
        lambda f: Change(float(f["at"]), Verb(f["verb"]), f["node"], f["key"], int(f["number"] or 0), _seconds(f["seconds"])),
    ),
    (
        re.compile(rf"{_TIME} read (?P<node>\S+) (?P<most>\d+)"),
        lambda f: Read(float(f["at"]), f["node"], int(f["most"])),
    ),
    (
        re.compile(rf"{_TIME} (?P<kind>[a-z]+) (?P<subject>\S+)(?: for (?P<seconds>[\d.]+))?(?: by (?P<amount>-?[\d.]+))?"),
        lambda f: Fault(float(f["at"]), f["kind"], f["subject"], float(f["seconds"] or 0), float(f["amount"] or 0)),
    ),
)


def _seconds(text: str | None) -> float:
    return EVER if text == "ever" else float(text or 0)


def _message(text: str) -> tuple[str, tuple[str, ...]]:
    client, _, destinations = text.partition(">")
    return client, tuple(destinations.split(","))


def parse_event(line: str) -> Event:
    for pattern, make in _LINES:
        if found := pattern.fullmatch(line):
            return make(found.groupdict())
    raise Invalid(
        f"event {line!r}", "it is no fault, no write and no change or read of keys", "see `trunkline sim show --help`"
    )


@dataclass(frozen=True)
class History:
    """One run: the same history gives the same fingerprint."""

    scenario: str
    seed: int
    loss: float
    events: tuple[Event, ...]

    def text(self) -> str:
        head = [FORMAT, f"scenario {self.scenario}", f"seed {self.seed}", f"loss {self.loss}"]
        return "\n".join([*head, *map(str, self.events)]) + "\n"


def parse_history(text: str, where: str = "history") -> History:
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines or lines[0][1] != FORMAT:
        raise Invalid(where, f"its first line is not {FORMAT!r}", "write one with `trunkline sim shrink --out`")
    fields: dict[str, str] = {}
    events: list[Event] = []
    for number, line in lines[1:]:
        word, _, rest = line.partition(" ")
        if word in ("scenario", "seed", "loss"):
            fields[word] = rest
        elif not line.startswith("#"):
            events.append(_at_line(line, f"{where}:{number}"))
    try:
        return History(fields["scenario"], int(fields["seed"]), float(fields["loss"]), in_order(events))
    except (KeyError, ValueError) as error:
        raise Invalid(where, f"scenario, seed or loss is missing or wrong: {error}", "write the three lines") from None


def _at_line(line: str, where: str) -> Event:
    try:
        return parse_event(line)
    except Invalid as error:
        raise Invalid(f"{where}: {error.what}", error.why, error.next_step) from None


def load_history(path: Path) -> History:
    try:
        return parse_history(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(str(path), f"it cannot be read: {error}", "name a file that `sim shrink --out` wrote") from None


def in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda e: (e.at, str(e))))
