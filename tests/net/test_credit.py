"""A sender and a receiver of one channel, joined by two pipes; the numbers are the invariants of `trunkline.net.credit`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.errors import LocalProtocolError, RemoteProtocolError
from trunkline.net.credit import Account, Allowance

WINDOW = 100
sizes = st.integers(min_value=1, max_value=3 * WINDOW)


@dataclass
class Pair:
    """Bytes on their way stand in the pipes: frames one way, returns of credit the other."""

    sender: Allowance = field(default_factory=lambda: Allowance(WINDOW))
    receiver: Account = field(default_factory=lambda: Account(WINDOW))
    frames: deque[int] = field(default_factory=deque)
    returns: deque[int] = field(default_factory=deque)
    handled: int = 0

    def send(self, size: int) -> bool:
        if self.sender.left <= 0:
            return False
        self.sender.spend(size, size)
        self.frames.append(size)
        return True

    def arrive(self, count: int) -> None:
        """The next frames arrive in one piece."""
        run = [self.frames.popleft() for _ in range(min(count, len(self.frames)))]
        if run:
            self.receiver.received(sum(run), run[-1])
            self.handled += sum(run)

    def give_back(self) -> None:
        if self.receiver.due:
            self.returns.append(self.receiver.give_back())

    def come_back(self) -> None:
        if self.returns:
            self.sender.returned(self.returns.popleft())

    def check(self) -> None:
        on_the_way = sum(self.frames) + sum(self.returns)
        assert self.sender.left + on_the_way + self.receiver.owed == WINDOW
        assert self.receiver.left + self.receiver.owed == WINDOW
        assert self.sender.left <= WINDOW
        assert sum(self.frames) + self.receiver.owed < WINDOW + 3 * WINDOW

    def settle(self) -> None:
        while self.frames or self.returns or self.receiver.due:
            self.arrive(1)
            self.give_back()
            self.come_back()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), sizes),
        st.tuples(st.just("arrive"), st.integers(min_value=1, max_value=5)),
        st.tuples(st.sampled_from(["give_back", "come_back", "pause", "resume"]), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_1_2_3_4_whatever_happens_no_end_blames_the_other_and_nothing_gets_stuck(steps: list[tuple[str, int]]) -> None:
    pair = Pair()
    for what, number in steps:
        match what:
            case "send":
                pair.send(number)
            case "arrive":
                pair.arrive(number)
            case "give_back":
                pair.give_back()
            case "come_back":
                pair.come_back()
            case _:
                pair.receiver.paused = what == "pause"
        pair.check()
    pair.receiver.paused = False
    pair.settle()
    pair.check()
    assert pair.send(1), "a sender whose frames were all handled may send"


@given(st.lists(sizes, min_size=1, max_size=20))
def test_1_a_paused_receiver_gets_a_window_and_one_frame_at_most(wanted: list[int]) -> None:
    pair = Pair()
    pair.receiver.paused = True
    sent = [size for size in wanted if pair.send(size)]
    pair.settle()
    assert pair.handled == sum(sent)
    assert sum(sent[:-1]) < WINDOW
    assert (pair.sender.left <= 0) == (not pair.send(1))


def test_1_a_frame_larger_than_the_window_passes() -> None:
    pair = Pair()
    assert pair.send(50 * WINDOW)
    assert not pair.send(1)
    pair.settle()
    assert pair.send(1)


def test_1_spending_without_credit_is_our_own_fault() -> None:
    allowance = Allowance(WINDOW)
    allowance.spend(WINDOW, 1)
    with pytest.raises(LocalProtocolError):
        allowance.spend(1, 1)


@given(st.lists(sizes, min_size=1, max_size=10), st.integers(min_value=1, max_value=10))
def test_2_a_frame_that_begins_beyond_the_credit_is_a_breach_in_whatever_pieces_it_comes(sizes: list[int], piece: int) -> None:
    honest = next((n for n in range(1, len(sizes)) if sum(sizes[:n]) >= WINDOW), len(sizes))
    account = Account(WINDOW)
    account.paused = True
    for at in range(0, honest, piece):
        run = sizes[at : min(at + piece, honest)]
        account.received(sum(run), run[-1])
    if sum(sizes[:honest]) < WINDOW:
        account.received(WINDOW - sum(sizes[:honest]), 1)
    with pytest.raises(RemoteProtocolError, match="credit"):
        account.received(1, 1)
    at_once = Account(WINDOW)
    if sum(sizes) - sizes[-1] >= WINDOW:
        with pytest.raises(RemoteProtocolError, match="credit"):
            at_once.received(sum(sizes), sizes[-1])
    else:
        at_once.received(sum(sizes), sizes[-1])


@given(spent=st.integers(min_value=0, max_value=WINDOW), back=st.integers(min_value=-5, max_value=10 * WINDOW))
def test_3_more_than_was_spent_never_comes_back(spent: int, back: int) -> None:
    allowance = Allowance(WINDOW)
    if spent:
        allowance.spend(spent, 1)
    if 0 < back <= spent:
        allowance.returned(back)
        assert allowance.left == WINDOW - spent + back
        return
    with pytest.raises(RemoteProtocolError, match="credit"):
        allowance.returned(back)
    assert allowance.left == WINDOW - spent


def test_returns_are_batched_by_half_a_window() -> None:
    account = Account(WINDOW)
    account.received(WINDOW // 2 - 1, 1)
    assert not account.due
    account.received(1, 1)
    assert account.due
    assert account.give_back() == WINDOW // 2
    assert not account.due
