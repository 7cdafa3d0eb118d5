"""Clients are kept between batches, but never after a failure, and not without bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from trunkline.pipeline.kafka.clients import borrowed, close_kept


class Closable:
    def __init__(self, config: dict[str, Any]) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    close_kept()
    yield
    close_kept()


def test_a_client_is_kept_for_the_next_task_with_the_same_configuration() -> None:
    with borrowed(Closable, {"n": 1}) as first:
        pass
    with borrowed(Closable, {"n": 2}) as other, borrowed(Closable, {"n": 1}) as again:
        assert again is first
        assert other is not first
    assert not first.closed


def test_it_is_lent_to_one_at_a_time_and_one_of_two_equal_ones_is_closed() -> None:
    with borrowed(Closable, {}) as one, borrowed(Closable, {}) as two:
        assert one is not two
    assert [one.closed, two.closed] == [False, True]


def test_after_a_failure_it_is_closed_and_the_next_task_gets_a_fresh_one() -> None:
    with pytest.raises(KeyError), borrowed(Closable, {}) as failed:
        raise KeyError
    assert failed.closed
    with borrowed(Closable, {}) as fresh:
        assert fresh is not failed


def test_the_oldest_is_closed_when_too_many_are_kept() -> None:
    lent = []
    for n in range(6):
        with borrowed(Closable, {"n": n}) as client:
            lent.append(client)
    assert [client.closed for client in lent] == [True, True, False, False, False, False]
    close_kept()
    assert all(client.closed for client in lent)
