"""Valid frames, ways to spoil them, and what a link must make of the result: a slow and simple second opinion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

import msgspec

from trunkline.core.codec import Codec
from trunkline.core.errors import RemoteProtocolError
from trunkline.net.channels import DATA, LARGEST, MAX_CONTROL, MAX_FRAME, Channel
from trunkline.net.frames import encode_frame
from trunkline.net.hello import Bye, Control, Credit, Heartbeat, Hello, decode_control, encode_control


class Note(msgspec.Struct, frozen=True, tag="note"):
    words: str
    number: int


NOTES: Codec[Note] = Codec("note", Note)


def control(message: Control) -> bytes:
    return encode_frame(Channel.CONTROL, encode_control(message))


def valid_frame(random: Random, hello: Hello) -> bytes:
    """Mostly data; of control what keeps a link up, and sometimes what ends it."""
    match random.randrange(12):
        case 0:
            return control(Heartbeat({f"site-{n}": random.randrange(2**40) for n in range(random.randrange(4))}))
        case 1:
            return control(Credit(random.choice(list(DATA)), random.randrange(1, 2000)))
        case 2:
            return control(random.choice([hello, Bye("enough", "none"), Heartbeat({})]))
        case _:
            note = Note("x" * random.randrange(60), random.randrange(2**63))
            return encode_frame(random.choice(list(DATA)), NOTES.encode(note))


def _flip(random: Random, frame: bytes) -> bytes:
    at = random.randrange(len(frame))
    return frame[:at] + bytes([frame[at] ^ (1 << random.randrange(8))]) + frame[at + 1 :]


def _replace(random: Random, frame: bytes) -> bytes:
    at = random.randrange(len(frame))
    return frame[:at] + random.randbytes(1) + frame[at + 1 :]


def _replace_in_body(random: Random, frame: bytes) -> bytes:
    return frame[:5] + _replace(random, frame[5:]) if len(frame) > 5 else frame


def _cut_body(random: Random, frame: bytes) -> bytes:
    return encode_frame(Channel(frame[4]), frame[5 : random.randrange(5, len(frame) + 1)])


def _cut_frame(random: Random, frame: bytes) -> bytes:
    return frame[: random.randrange(len(frame))]


def _insert(random: Random, frame: bytes) -> bytes:
    at = random.randrange(len(frame))
    return frame[:at] + random.randbytes(random.randrange(1, 9)) + frame[at:]


def _wrong_length(random: Random, frame: bytes) -> bytes:
    length = random.choice([0, 1, len(frame), len(frame) - 6, MAX_CONTROL + 1, MAX_FRAME, MAX_FRAME + 1, 2**32 - 1])
    return max(length, 0).to_bytes(4, "big") + frame[4:]


def _other_channel(random: Random, frame: bytes) -> bytes:
    return frame[:4] + bytes([random.choice([*Channel, 3, 9, 255])]) + frame[5:]


def _twice(random: Random, frame: bytes) -> bytes:
    return frame + frame


def _garbage(random: Random, frame: bytes) -> bytes:
    return random.randbytes(random.randrange(1, 40))


# A spoiled frame in the stream ends it more often than not; the first ones are there twice so that attacks last longer.
MUTATIONS: tuple[Callable[[Random, bytes], bytes], ...] = (
    _replace_in_body,
    _replace_in_body,
    _twice,
    _twice,
    _flip,
    _replace,
    _cut_body,
    _cut_frame,
    _insert,
    _wrong_length,
    _other_channel,
    _garbage,
)


def mutated_frame(random: Random, hello: Hello) -> bytes:
    return random.choice(MUTATIONS)(random, valid_frame(random, hello))


@dataclass
class Opinion:
    """What a link must do with a stream that then ends."""

    delivered: list[tuple[Channel, bytes]] = field(default_factory=list)
    violation: str | None = None
    frames: int = 0


def opinion(stream: bytes, sent: int = 0) -> Opinion:
    """Of a link that has itself sent so many bytes on each channel: so much credit may come back."""
    verdict = Opinion()
    spent = dict.fromkeys(map(int, DATA), sent)
    try:
        for channel, body in _frames(stream):
            verdict.frames += 1
            if channel is not Channel.CONTROL:
                verdict.delivered.append((channel, body))
                NOTES.decode(body)
            elif not _goes_on(decode_control(body), spent):
                return verdict
    except RemoteProtocolError as error:
        verdict.violation = error.what
    return verdict


def _frames(stream: bytes) -> Iterator[tuple[Channel, bytes]]:
    broken = RemoteProtocolError("frame", "", "")
    while stream:
        if len(stream) < 5 or stream[4] not in list(Channel):
            raise broken
        length = int.from_bytes(stream[:4], "big")
        if not 1 <= length <= LARGEST[Channel(stream[4])] or len(stream) < 4 + length:
            raise broken
        yield Channel(stream[4]), stream[5 : 4 + length]
        stream = stream[4 + length :]


def _goes_on(message: Control, spent: dict[int, int]) -> bool:
    match message:
        case Hello():
            raise RemoteProtocolError("control message", "", "")
        case Credit(channel, size):
            if size > spent.get(channel, 0):
                raise RemoteProtocolError("credit", "", "")
            spent[channel] -= size
        case Bye():
            return False
    return True
