"""Letting go of what will not come back, in the caller's transaction; what is not there is an error."""

from __future__ import annotations

from typing import Any

import psycopg

from trunkline.core.errors import Invalid
from trunkline.queues.consumers import detach
from trunkline.queues.inspect import NoSuchQueue
from trunkline.queues.requests import cancel

_CONSUMERS = "SELECT name FROM queues.consumer WHERE client = %s ORDER BY name"
_OPEN = "SELECT id FROM queues.request WHERE client = %s AND state IN ('wanted', 'ready', 'providing', 'complete')"


def drop_consumer(conn: psycopg.Connection[Any], client: str, name: str) -> dict[str, Any]:
    """Nothing waits for it any more, and its dead letters go with it."""
    known = [consumer for (consumer,) in conn.execute(_CONSUMERS, (client,))]
    if name not in known:
        named = f"name one of: {', '.join(known)}" if known else "see the clients with `trunkline queues ls`"
        raise Invalid(f"consumer {name!r} of client {client!r}", "there is none of this name", named)
    detach(conn, client, name)
    letters = conn.execute("DELETE FROM queues.dead_letter WHERE (client, consumer) = (%s, %s)", (client, name)).rowcount
    return {"client": client, "consumer": name, "dead_letters": letters}


def drop_provider(conn: psycopg.Connection[Any], client: str) -> dict[str, Any]:
    """The client has no snapshots any more: whoever lacks entries that were trimmed is told that they are lost."""
    if not conn.execute("DELETE FROM queues.provider WHERE client = %s", (client,)).rowcount:
        known = [name for (name,) in conn.execute("SELECT client FROM queues.provider ORDER BY client")]
        named = f"name one of: {', '.join(known)}" if known else "there is nothing to drop: no client has one"
        raise Invalid(f"provider of client {client!r}", "there is none", named)
    requests = [request for (request,) in conn.execute(_OPEN, (client,)).fetchall()]
    for request in requests:
        cancel(conn, request, "its provider was dropped")
    return {"client": client, "cancelled": [str(request) for request in requests]}


def drop_queue(conn: psycopg.Connection[Any], name: str) -> dict[str, Any]:
    """With what waits in it, and the session that fed it: if its site comes back, it begins anew."""
    found = conn.execute(
        "DELETE FROM queues.queue WHERE name = %s RETURNING id, client, remote, head - tail", (name,)
    ).fetchone()
    if found is None:
        raise NoSuchQueue(name, [known for (known,) in conn.execute("SELECT name FROM queues.queue ORDER BY name")])
    queue, client, remote, waiting = found
    conn.execute("DELETE FROM queues.consumed WHERE queue = %s", (queue,))
    conn.execute("DELETE FROM queues.closed_slot WHERE queue = %s", (queue,))
    conn.execute("DELETE FROM queues.session WHERE (origin, client) = (%s, %s)", (remote, client))
    conn.execute("DELETE FROM queues.status WHERE (role, remote, client) = ('sink', %s, %s)", (remote, client))
    return {"queue": name, "client": client, "remote": remote, "waiting": waiting}
