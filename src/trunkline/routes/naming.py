"""The ids of messages: the same whenever the same is sent again, and of nothing else.

    <source event>:<org>/<app>/<route>:<n>            the n-th of all that became of that event
    <source event>:<org>/<app>/<route>:<n>+<members>  it was made of several events, of which that is the first

Who sends once passes over an id that it knows. So an id says all that a message was made of: events that come again may be
joined otherwise, and what was joined otherwise is another message.
"""

from __future__ import annotations

import hashlib

from trunkline.routes.event import Event

_BYTES = 9


def numbered(number: int, event: Event) -> str:
    """How the id of what became of this event ends."""
    return f"{number}{_members(event)}" if len(event.entered) > 1 else str(number)


def _members(event: Event) -> str:
    sources = list(dict.fromkeys(one.source.id for one in event.entered))
    if len(sources) == 1:
        return ""
    hash = hashlib.blake2b(digest_size=_BYTES)
    for source in sources:
        name = source.encode()
        hash.update(b"%d:%s" % (len(name), name))
    return f"+{hash.hexdigest()}"
