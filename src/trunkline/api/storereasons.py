"""Why the store did not take something, in words, and what to do about it."""

from __future__ import annotations

from trunkline.api.problem import NO_KEY, NOT_TAKEN, TOO_LARGE, Kind, Refused
from trunkline.store.values import MAX_KEY, MAX_VALUE, MAX_VERSION, Reason

_SIZES = f"a key has 1 to {MAX_KEY} characters, a value at most {MAX_VALUE} bytes"
WORDS: dict[str, tuple[str, str]] = {
    Reason.OLD_VERSION: ("a higher version is stored", "read the key and write above its version, or write without a version"),
    Reason.NO_NEED_TO_UPDATE: ("what is stored is the same, or wins at this version", "leave it, or write a higher version"),
    Reason.INCONSISTENT: ("nothing is stored there that could be refreshed", "write the value"),
    Reason.INVALID_TTL: ("its ttl is not positive", "give a ttl of at least 1 ms, or none"),
    Reason.INVALID_VERSION: ("its version is out of range", f"write a version from 1 to {MAX_VERSION}, or none"),
    Reason.TOO_LARGE: (_SIZES, "store a reference to it"),
    Reason.NOT_THE_OWNER: (
        "keys that begin with node:, link:, rows: or site: are written by the node or the site they name, and by nobody else",
        "choose another beginning",
    ),
    Reason.WRONG_HASH: ("its hash does not fit its bytes", "write it again"),
    Reason.LOOP: ("it has passed this node before", "nothing: it is here"),
}
_UNKNOWN = ("the store refused it", "look at the node's log")
_KINDS: dict[str, Kind] = {Reason.TOO_LARGE: TOO_LARGE}


def words_of(reason: str) -> tuple[str, str]:
    """Why, and the next step."""
    return WORDS.get(reason, _UNKNOWN)


def not_taken(key: str, reason: str) -> Refused:
    why, next_step = words_of(reason)
    return Refused(_KINDS.get(reason, NOT_TAKEN), f"key {key!r}", f"{reason}: {why}", next_step)


def not_there(key: str, area: str) -> Refused:
    return Refused(NO_KEY, f"key {key!r}", f"nothing is stored there in area {area}", f"see GET /v1/store/{area}")
