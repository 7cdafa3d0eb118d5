"""The CONTROL channel: who the two ends of a link are, what they speak, and which of two links stays.

Both ends send HELLO first, without waiting. An end that accepts the other's HELLO answers with its first HEARTBEAT;
an end that does not, answers BYE and closes. So:

1. A link is up at an end only when that end accepted the peer's HELLO *and* has the peer's HEARTBEAT, which proves
   that the peer accepted too. Nothing but CONTROL crosses before.
2. HELLO speaks only for the name in the sender's certificate.
3. Both ends compute the same wire version: the lower of the two newest, if neither is too old for the other.
   An unknown newer version is told which ones we speak.
4. Of two links between the same two nodes both ends keep the same one, because they compare what both ends know: the
   incarnations in the HELLOs of each link, then who dialled it. A higher incarnation wins, so the half-open link of a
   node that died never blocks the new one; between equals the link dialled by the smaller node id stays.

Messages are maps, not arrays: a newer node may add fields, an older one ignores them.

How the wire changes. What an older node may ignore is a new field, or a capability named in HELLO and used only when both
ends name it, with the channels that belong to it: no new version. Anything else (a new frame layout, window or control
message, a channel of no capability) is wire version N + 1: WIRE_VERSION rises, OLDEST_WIRE follows to N, both are coded,
and `Link.wire`, the same number at both ends, chooses. A fleet is then upgraded node by node; the version after that drops
N. Every version keeps `wire` and `oldest` in its HELLO. Version 1 is the first; credit (`trunkline.net.credit`) is part of it.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from trunkline.core.codec import MALFORMED
from trunkline.core.errors import RemoteProtocolError
from trunkline.core.ids import NodeId

WIRE_VERSION = 1
OLDEST_WIRE = 1

_Wire = Annotated[int, msgspec.Meta(ge=1)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """`incarnation` is mine, `known_incarnation` the highest I know of you; `heads` and `applied` are by origin.

    `carries`: we exchange records. `follows`: I take yours, and you need not take mine.
    """

    wire: _Wire
    oldest: _Wire
    capabilities: tuple[str, ...]
    site: str
    node: str
    incarnation: _Count
    known_incarnation: _Count
    log_id: str
    neighbours: tuple[str, ...]
    heads: dict[str, _Count]
    applied: dict[str, _Count]
    carries: bool
    addresses: tuple[str, ...]
    follows: bool = False

    @property
    def identity(self) -> NodeId:
        return NodeId(self.site, self.node)


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    heads: dict[str, _Count]


class Credit(msgspec.Struct, frozen=True, tag="credit"):
    """The sender has handled `size` bytes of that channel: as many more may come (`trunkline.net.credit`)."""

    channel: _Count
    size: Annotated[int, msgspec.Meta(ge=1)]


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """The sender closes this connection; nothing follows."""

    reason: str
    next_step: str


Control: TypeAlias = Hello | Heartbeat | Credit | Bye


class _Versions(msgspec.Struct, frozen=True, tag="hello"):
    """The part of a HELLO that every wire version has."""

    wire: _Wire
    oldest: _Wire


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Control] = msgspec.msgpack.Decoder(Control)
_versions_decoder = msgspec.msgpack.Decoder(_Versions)


def encode_control(message: Control) -> bytes:
    return _encoder.encode(message)


def decode_control(body: bytes) -> Control:
    try:
        return _decoder.decode(body)
    except MALFORMED as error:
        _refuse_newer(body)
        why = f"it cannot be read: {error}"
        raise RemoteProtocolError("control message", why, "send HELLO, HEARTBEAT, CREDIT or BYE") from None


def _refuse_newer(body: bytes) -> None:
    """A HELLO we cannot read, of a version we do not know, is no nonsense: say what we speak."""
    try:
        theirs = _versions_decoder.decode(body)
    except MALFORMED:
        return
    if theirs.wire > WIRE_VERSION:
        raise _no_common_version((OLDEST_WIRE, WIRE_VERSION), (theirs.oldest, theirs.wire))


def negotiate(mine: Hello, theirs: Hello) -> int:
    version = min(mine.wire, theirs.wire)
    if version < max(mine.oldest, theirs.oldest):
        raise _no_common_version((mine.oldest, mine.wire), (theirs.oldest, theirs.wire))
    return version


def _no_common_version(ours: tuple[int, int], theirs: tuple[int, int]) -> RemoteProtocolError:
    return RemoteProtocolError(
        "wire version",
        f"this node speaks {ours[0]} to {ours[1]}, the peer {theirs[0]} to {theirs[1]}",
        "upgrade the older of the two nodes",
    )


def check_identity(hello: Hello, certified: NodeId) -> None:
    if hello.identity != certified:
        raise RemoteProtocolError(
            "identity",
            f"HELLO names {str(hello.identity)!r}, the certificate {str(certified)!r}",
            "start the node under the name in its certificate",
        )


def carries_records(mine: Hello, theirs: Hello) -> bool:
    return hears(mine, theirs) or hears(theirs, mine)


def hears(mine: Hello, theirs: Hello) -> bool:
    """Whether this end takes records from the other, where the link carries."""
    return mine.carries or theirs.carries or mine.follows


Rank: TypeAlias = tuple[int, int, bool]


def rank(mine: Hello, theirs: Hello, outgoing: bool) -> Rank:
    """The higher one of two links stays. The same number at both ends, where mine and theirs change places."""
    smaller, larger = sorted((mine, theirs), key=lambda hello: hello.identity)
    dialler = mine if outgoing else theirs
    return smaller.incarnation, larger.incarnation, dialler is smaller
