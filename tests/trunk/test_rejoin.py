"""Rule 3 of the trunk: who may join a stream that already runs, and who makes the site subscribe again."""

from __future__ import annotations

import pytest

from trunkline.core.ids import START, Position
from trunkline.trunk import asks
from trunkline.trunk.carry import Carrier
from trunkline.trunk.log import NOTHING_APPLIED, Applied, Entry
from trunkline.trunk.messages import Batch, Subscribe
from trunkline.trunk.wants import joins

ONE, TWO, OTHER = Position(1, 11), Position(2, 22), Position(2, 99)


def at(**clients: Position) -> Applied:
    return Applied("log", clients)


@pytest.mark.parametrize(
    ("want", "asked", "cursor", "joined"),
    [
        (at(status=TWO), at(status=ONE), TWO, True),
        (at(status=ONE), at(status=ONE), START, True),
        (NOTHING_APPLIED, NOTHING_APPLIED, START, True),
        (at(status=ONE), at(), TWO, False),  # less than the stream has passed
        (at(), at(status=ONE), START, False),  # less than the origin was told: it leaves entry 1 out
        (at(status=TWO), at(), ONE, False),  # more than the origin has seen
        (at(status=OTHER), at(status=ONE), TWO, False),  # H11: the same number of another history
    ],
)
def test_a_taker_joins_when_it_has_exactly_what_the_stream_takes_it_to_have(
    want: Applied, asked: Applied, cursor: Position, joined: bool
) -> None:
    assert joins(want, asked, cursor, ("status",)) is joined


class Relay:
    """Between hub and two leaves, driven message by message."""

    def __init__(self) -> None:
        self.carrier = Carrier("relay", 1, "log-relay")
        for site in ("hub", "leaf-1", "leaf-2"):
            self.carrier.link_up(site)
        self.carrier.move("hub", "hub", False, 0.0)
        self.carrier.loaded("hub", NOTHING_APPLIED)
        self.now = 0.0

    def subscribed(self) -> Subscribe:
        """What the next tick asks of the hub."""
        self.now += 0.1
        sends = [e.message for e in self.carrier.tick(self.now) if isinstance(e, asks.Send) and e.site == "hub"]
        (found,) = [message for message in sends if isinstance(message, Subscribe)]
        return found

    def leaf(self, leaf: str, id: int) -> None:
        self.carrier.receive(leaf, Subscribe(id, "hub", {leaf: NOTHING_APPLIED}), self.now)

    def opens(self, id: int) -> None:
        self.carrier.receive("hub", Batch(id, "hub", "log", 0, (), START, ("status",), True), self.now)

    def brings(self, id: int) -> None:
        entry = Entry(1, "status", ("leaf-1",), {}, b"x")
        self.carrier.receive("hub", Batch(id, "hub", "log", 0, (entry,), ONE, ("status",), False), self.now)


def test_g4_a_child_that_lost_a_batch_is_not_left_on_a_stream_that_takes_it_to_have_it() -> None:
    """The stream began anew for a sibling, further back than the child was thought to be: its cursor alone says nothing."""
    relay = Relay()
    relay.leaf("leaf-1", 1)
    first = relay.subscribed()
    relay.opens(first.id)
    relay.brings(first.id)  # passed on to leaf-1, and lost on the way
    relay.leaf("leaf-2", 1)
    second = relay.subscribed()
    assert second.wants["leaf-1"].clients == {"status": ONE}
    relay.opens(second.id)
    relay.leaf("leaf-1", 2)  # it saw the hole, and says that it has nothing
    assert relay.subscribed().wants["leaf-1"].clients == {}


def test_h13_only_who_is_being_fed_is_kept_when_the_set_changes() -> None:
    """A child that came anew just where the stream stands is not in it yet: what follows passes it by until it is let in."""
    relay = Relay()
    relay.leaf("leaf-1", 1)
    first = relay.subscribed()
    relay.opens(first.id)
    relay.brings(first.id)
    relay.carrier.receive("leaf-1", Subscribe(2, "hub", {"leaf-1": at(status=ONE)}), relay.now)
    relay.leaf("leaf-2", 1)
    second = relay.subscribed()
    assert second.continues == first.id
    assert second.kept == ("relay",)
    assert second.wants["leaf-1"].clients == {"status": ONE}
