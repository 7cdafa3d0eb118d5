"""The numbers are the rules of `trunkline.net.vigil`; time is turned by hand."""

from __future__ import annotations

import pytest

from trunkline.core.errors import RemoteProtocolError
from trunkline.net.vigil import SILENT_HEARTBEATS, SLOWEST, Progress, Vigil

BEAT = 0.5
LIMIT = SILENT_HEARTBEATS * BEAT


class Peer:
    """What its connection has received, looked at every heartbeat."""

    def __init__(self) -> None:
        self.now = 100.0
        self.bytes = self.frames = self.unfinished = 0
        self._vigil = Vigil(BEAT, self.now)

    def look(self, after: float = BEAT) -> str | None:
        self.now += after
        return self._vigil.look(Progress(self.bytes, self.frames, self.unfinished), self.now)

    def drips(self, size: int) -> None:
        """One more byte of a frame of that size."""
        self.bytes, self.unfinished = self.bytes + 1, size


def looks_until_closed(peer: Peer) -> int:
    looks = 1
    while peer.look() is None:
        looks += 1
        assert looks < 1000
    return looks


def test_1_silence_of_four_heartbeats_ends_the_link() -> None:
    peer = Peer()
    assert looks_until_closed(peer) == SILENT_HEARTBEATS


def test_1_any_byte_is_a_sign_of_life() -> None:
    peer = Peer()
    for _ in range(100):
        peer.bytes, peer.frames = peer.bytes + 5, peer.frames + 1
        assert peer.look() is None
    assert looks_until_closed(peer) == SILENT_HEARTBEATS


@pytest.mark.parametrize("size", [4, 100, 10 * SLOWEST])
def test_2_a_frame_that_drips_in_is_given_the_time_it_needs_and_no_more(size: int) -> None:
    peer = Peer()
    allowed = LIMIT + size / SLOWEST
    begun = peer.now

    def drip_on() -> None:
        while True:
            peer.drips(size)
            assert peer.look() is None

    with pytest.raises(RemoteProtocolError, match=f"frame of {size} bytes is not whole"):
        drip_on()
    assert allowed < peer.now - begun <= allowed + 3 * BEAT


def test_2_each_frame_has_its_own_time() -> None:
    peer = Peer()
    for _ in range(50):
        peer.drips(1000)
        assert peer.look() is None
        peer.frames += 1


def test_3_a_process_that_stood_still_blames_nobody() -> None:
    peer = Peer()
    peer.drips(100)
    for _ in range(SILENT_HEARTBEATS - 1):
        assert peer.look() is None
    assert peer.look(after=60.0) is None
    for _ in range(SILENT_HEARTBEATS - 1):
        assert peer.look() is None
    assert "silent" in (peer.look() or "")
