"""Deltas and acks as the texts of the design document: `op,rid,iid,sid`.

What the document has no place for stands behind it: `item,org,app` where it is not a route of the house, and of an ack always,
followed by `revision,reason`. So four fields are a delta or an ack as well. Characters that would be taken for something else
are percent-encoded; a text is always one line.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from trunkline.routes.keys import HOUSE, Tenant
from trunkline.routes.sync.base import Ack, Delta, Item, Operation

MOST_REASON = 500
"""Characters of a refusal's reason: whatever they are, an ack fits into one notification of Postgres."""
_PLAIN = "/:@ "
_ROUTE_OF_THE_HOUSE = (Item.ROUTE, HOUSE.org, HOUSE.app)


def delta_text(delta: Delta) -> str:
    return _joined(_document(delta) + (() if _whose(delta) == _ROUTE_OF_THE_HOUSE else _whose(delta)))


def ack_text(ack: Ack) -> str:
    return _joined((*_document(ack), *_whose(ack), str(ack.revision), ack.reason))


def read_delta(text: str) -> Delta | None:
    """None: this is no delta."""
    try:
        operation, id, instance, session, *whose = _fields(text)
        item, org, app = whose or _ROUTE_OF_THE_HOUSE
        delta = Delta(Operation(operation), Tenant(org, app), id, instance, session, Item(item))
    except ValueError:
        return None
    return delta if _names_something(delta) else None


def read_ack(text: str) -> Ack | None:
    """None: this is no ack."""
    try:
        operation, id, instance, session, *more = _fields(text)
        item, org, app, revision, reason = more or (*_ROUTE_OF_THE_HOUSE, "0", "")
        return Ack(session, instance, int(revision), reason, Operation(operation), Tenant(org, app), id, Item(item))
    except ValueError:
        return None


def _names_something(delta: Delta) -> bool:
    return delta.operation is Operation.ALL or (delta.item is Item.ROUTE) == (delta.id != "")


def _document(of: Delta | Ack) -> tuple[str, ...]:
    return of.operation, of.id, of.instance, of.session


def _whose(of: Delta | Ack) -> tuple[str, ...]:
    return of.item, of.tenant.org, of.tenant.app


def _joined(fields: tuple[str, ...]) -> str:
    return ",".join([quote(field, safe=_PLAIN) for field in fields])


def _fields(text: str) -> list[str]:
    return [unquote(field, errors="strict") for field in text.split(",")]
