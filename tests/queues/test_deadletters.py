"""Messages that are refused for good: found, kept with their identity, and tried again on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from listening import Application, waiting
from receiving import Receiver, arrive, receiving_side

from trunkline.queues.deadletters import letters, replay
from trunkline.queues.listener import Pace


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("queues")


@pytest.fixture
def site(database: str) -> Iterator[Receiver]:
    with receiving_side(database) as receiver:
        yield receiver


def test_l4_a_poison_message_goes_to_the_dead_letters_after_its_tries_and_no_other_is_skipped(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 40)
    app = Application(refuses={b"7", b"33"})
    app.listen(site, lambda: waiting(site) == [0], tries=3)
    assert app.taken == [b"%d" % seq for seq in range(1, 41) if seq not in (7, 33)]
    with psycopg.connect(site.dsn) as conn:
        dead = letters(conn, "app", "ledger")
    assert [(d.message.payload, d.message.message_id, d.message.position) for d in dead] == [
        (b"7", "leaf/7/0", 7), (b"33", "leaf/33/0", 33),
    ]  # fmt: skip
    assert all(d.tries >= 3 and "answered False" in d.reason and not d.waits for d in dead)
    assert [d.message.headers for d in dead] == [{"n": "7"}, {"n": "33"}]


def test_l4_tries_outlive_the_listener(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 1)
    app = Application(refuses={b"1"})
    slow = Pace(busy=0.005, idle=0.02, first_retry=60, last_retry=60)
    for tries in (1, 2):
        app.listen(site, lambda n=tries: site.ask("SELECT tries FROM queues.consumed") == [n], tries=3, pace=slow)
    app.listen(site, lambda: waiting(site) == [0], tries=3, pace=slow)
    assert len(app.offered) == 3
    assert site.ask("SELECT tries FROM queues.dead_letter") == [3]


def test_dead_letters_are_replayed_and_what_is_refused_again_stays(site: Receiver) -> None:
    arrive(site.sink("app"), 1, 5)
    app = Application(refuses={b"2", b"4"})
    app.listen(site, lambda: waiting(site) == [0], tries=1)
    app.refuses.discard(b"2")
    with psycopg.connect(site.dsn) as conn:
        first, second = letters(conn, "app")
        assert replay(conn, "app", "someone-else") == []
        assert replay(conn, "app", "ledger", [first.id, second.id]) == [first.id, second.id]
        assert [d.waits for d in letters(conn, "app")] == [True, True]
    app.listen(site, lambda: site.ask("SELECT count(*) FROM queues.dead_letter WHERE replay_at IS NOT NULL") == [0])
    assert app.taken == [b"1", b"3", b"5", b"2"]
    assert app.ids[-1] == "leaf/2/0"
    with psycopg.connect(site.dsn) as conn:
        (left,) = letters(conn, "app")
    assert (left.message.payload, left.tries) == (b"4", second.tries + 1)
