"""Dead letters, as the commands show and replay them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg

from trunkline.core.errors import Invalid
from trunkline.queues.deadletters import DeadLetter, letters, replay

PAGE = 50  # of at most 1 MiB each


def listed(conn: psycopg.Connection[Any], client: str, consumer: str | None) -> list[dict[str, Any]]:
    return [_shown(letter) for letter in _all(conn, client, consumer)]


def replayed(conn: psycopg.Connection[Any], client: str, consumer: str | None, ids: Sequence[int]) -> list[dict[str, Any]]:
    """All or nothing: a letter that is named and not there is an error."""
    done = replay(conn, client, consumer, list(ids) or None)
    whose = f"of client {client!r}" + (f" and consumer {consumer!r}" if consumer else "")
    if missing := sorted(set(ids) - set(done)):
        raise Invalid(f"dead letter {missing[0]}", f"there is none {whose}", "see them with `trunkline queues replay … --list`")
    if not done:
        raise Invalid(f"dead letters {whose}", "there are none", "see who has some with `trunkline queues ls`")
    return [_shown(letter) for letter in _all(conn, client, consumer) if letter.id in set(done)]


def _all(conn: psycopg.Connection[Any], client: str, consumer: str | None) -> Iterator[DeadLetter]:
    after, page = 0, letters(conn, client, consumer, 0, PAGE)
    while page:
        yield from page
        after = page[-1].id
        page = letters(conn, client, consumer, after, PAGE)


def _shown(letter: DeadLetter) -> dict[str, Any]:
    message = letter.message
    return {
        "id": letter.id, "consumer": letter.consumer, "message_id": message.message_id, "remote": message.remote,
        "kind": message.kind.name.lower(), "position": message.position, "bytes": len(message.payload), "tries": letter.tries,
        "reason": letter.reason, "waits": letter.waits, "age_seconds": (datetime.now(UTC) - letter.refused_at).total_seconds(),
    }  # fmt: skip
