"""Records of a site that are gone: what it is known to send is asked for anew, and what needs those before it is held (H37).

Events that were in them are lost: they are sent once. Of types that were never heard of the site nothing is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import psycopg

from trunkline.bridge.batch import Lost
from trunkline.bridge.runs import forget_places
from trunkline.bridge.types import Types
from trunkline.bridge.wishes import Wish, wish, wish_for

_KNOWN = """
SELECT site, type FROM bridge.ledger WHERE site = ANY (%(sites)s)
UNION SELECT site, type FROM bridge.inbox WHERE site = ANY (%(sites)s)
UNION SELECT site, type FROM bridge.run WHERE site = ANY (%(sites)s)
UNION SELECT site, type FROM bridge.chunk WHERE site = ANY (%(sites)s)
ORDER BY site, type
"""


def wishes_for(types: Types, known: Iterable[tuple[str, str]], reasons: dict[str, str]) -> list[Wish]:
    """`known`: the sites and types that were heard; `reasons`: by site."""
    found = [wish_for(types, site, type_, reasons[site]) for site, type_ in known if type_ in types]
    return [one for one in found if one is not None]


def before_reading(conn: psycopg.Connection[Any], lost: Sequence[Lost]) -> None:
    forget_places(conn, [one.site for one in lost])


def want_again(conn: psycopg.Connection[Any], types: Types, lost: Sequence[Lost]) -> None:
    """After the batch's bundles are in the inbox: their types are known, too."""
    if lost:
        reasons = {one.site: one.reason for one in lost}
        known = conn.execute(_KNOWN, {"sites": list(reasons)}).fetchall()
        wish(conn, wishes_for(types, known, reasons))
