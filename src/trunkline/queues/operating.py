"""A site's queues as its operators use them, on connections of whoever asks: a node's pool, or one of a command.

Commands and API speak of the same things in the same words because both are made of this.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import psycopg

from trunkline.core.config import QueuesConfig
from trunkline.core.errors import Invalid, Terminal
from trunkline.core.ids import check_name
from trunkline.db.operated import Connect, Shown, operated
from trunkline.db.operated import told as told_of
from trunkline.queues import inspect
from trunkline.queues.requests import ask
from trunkline.queues.snapshots import OPEN

_WHAT = "database of the queues"

_PROVIDED = "SELECT client FROM queues.provider ORDER BY client"
_DESTINATIONS = """
SELECT destination FROM queues.acknowledged WHERE client = %(client)s
 UNION SELECT remote FROM queues.status WHERE role = 'source' AND client = %(client)s
 UNION SELECT unnest(destinations) FROM queues.request WHERE client = %(client)s AND state = ANY(%(open)s)
 ORDER BY 1
"""


class Operating:
    """Each call is one transaction; all may block."""

    def __init__(self, connect: Connect, config: QueuesConfig) -> None:
        self._connect, self._config = connect, config

    def listing(self) -> Shown:
        with self._transaction() as conn:
            return inspect.listing(conn, self._config.queue_entries, self._config.queue_bytes)

    def status(self) -> Shown:
        with self._transaction() as conn:
            return {"sessions": inspect.sessions(conn)}

    def numbers(self) -> Shown:
        """For metrics: both at once."""
        with self._transaction() as conn:
            found = inspect.listing(conn, self._config.queue_entries, self._config.queue_bytes)
            return found | {"sessions": inspect.sessions(conn)}

    def entries(self, name: str, after: int | None, most: int, shown: int) -> Shown:
        with self._transaction() as conn:
            return inspect.entries(conn, name, after, most, shown)

    def sync(self, site: str | None, client: str | None) -> Shown:
        """Asks for a forced snapshot for that site, or for all that this site has a session with; of one client or of all."""
        with self._transaction() as conn:
            clients = _provided(conn, client)
            wanted = {one: [_known(conn, site)] if site else _destinations(conn, one) for one in clients}
            if not any(wanted.values()):
                raise Invalid("snapshot", "there is no site that anything was sent to yet", "name one: `queues sync SITE`")
            asked = [(c, sites, ask(conn, c, sites, "forced", True)) for c, sites in wanted.items() if sites]
            return {"requests": [{"id": str(id), "client": c, "destinations": sites} for c, sites, id in asked]}

    def _transaction(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        return operated(self._connect, _WHAT, _missing)


def told() -> AbstractContextManager[None]:
    return told_of(_WHAT, _missing)


def _missing(why: str) -> Terminal:
    return Terminal(_WHAT, f"it has no queues: {why}", "start a node on this database once, or correct which database to ask")


def _provided(conn: psycopg.Connection[Any], client: str | None) -> list[str]:
    if client is not None:
        check_name("client", client)
    clients = [name for (name,) in conn.execute(_PROVIDED)]
    found = [name for name in clients if client in (None, name)]
    if found:
        return found
    what = f"snapshot of client {client!r}" if client else "snapshot"
    named = f"name one that has: {', '.join(clients)}" if clients else "start the application's SnapshotProvider first"
    raise Invalid(what, "no provider is registered that could give it" if client else "no client has a provider", named)


def _known(conn: psycopg.Connection[Any], site: str) -> str:
    check_name("site", site)
    known = [name for (name,) in conn.execute("SELECT name FROM queues.site ORDER BY name")]
    if site not in known:
        raise Invalid(f"site {site!r}", "this site has never heard of it", f"name one of: {', '.join(known) or 'none yet'}")
    return site


def _destinations(conn: psycopg.Connection[Any], client: str) -> list[str]:
    return [name for (name,) in conn.execute(_DESTINATIONS, {"client": client, "open": [*OPEN]})]
