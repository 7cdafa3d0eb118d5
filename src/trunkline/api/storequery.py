"""What a request wants to see of the store, out of its query, and one page of that.

A page has at most `limit` keys and, where the values are asked for, about `PAGE_BYTES`; `next` is what to ask for with `after`.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import Path
from fastapi import Query as Parameter
from starlette.convertors import Convertor, register_url_convertor

from trunkline.api.problem import NO_AREA, Refused
from trunkline.api.storeview import Query, Shown, StoreView
from trunkline.core.errors import Invalid
from trunkline.store.values import MAX_KEY

PAGE, MOST_ON_PAGE = 1_000, 10_000
PAGE_BYTES = 4 * 1024 * 1024
MOST_FILTERS = 32


def _repeated(description: str) -> Any:
    return Parameter(default_factory=list, max_length=MOST_FILTERS, description=f"{description}; may be repeated")


AreaName = Annotated[str, Path(description="`fleet`, `site:<site>`, or an area of the node's configuration")]
KeyName = Annotated[str, Path(description="percent-encoded; it may have slashes")]
Prefixes = Annotated[list[str], _repeated("beginning of a key")]
Patterns = Annotated[list[str], _repeated("regular expression that fits a key from its beginning")]
Originators = Annotated[list[str], _repeated("node that wrote it, as `<site>/<node>`")]
Match = Annotated[
    Literal["any", "all"], Parameter(description="with keys and originators given: whether either or both must fit")
]
Limit = Annotated[int, Parameter(ge=1, le=MOST_ON_PAGE, description="keys on a page")]
After = Annotated[str, Parameter(description="the key that the page before gave as `next`")]
Values = Annotated[bool, Parameter(description="whether to give the bytes, too")]


class _AnyText(Convertor[str]):
    """Also line ends, which the framework's own would cut off."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("key", _AnyText())


def wanted(prefix: Prefixes, key: Patterns, originator: Originators, match: Match = "any") -> Query:
    return Query(tuple(prefix), tuple(key), tuple(originator), match == "all")


def checked_key(key: str) -> str:
    if not 0 < len(key) <= MAX_KEY:
        raise Invalid("key", f"it has {len(key)} characters, and a key has 1 to {MAX_KEY}", "choose another name")
    return key


def unknown_area(area: str, known: list[str]) -> Refused:
    return Refused(NO_AREA, f"area {area!r}", "this node is not in it", f"ask for one of {', '.join(known)}")


def page(store: StoreView, area: str, query: Query, values: bool, after: str, limit: int) -> dict[str, Any]:
    """`values` and `next`."""
    found = store.dump(area, query, False, after, limit + 1)
    keys = _fitting(found, limit, values)
    shown = {key: store.get(area, key) for key in keys} if values else {key: found[key] for key in keys}
    gone_apart = {key: value for key, value in shown.items() if value is not None}
    return {"area": area, "values": gone_apart, "next": keys[-1] if len(keys) < len(found) else None}


def _fitting(found: dict[str, Shown], limit: int, values: bool) -> list[str]:
    keys, size = [], 0
    for key, shown in islice(found.items(), limit):
        keys.append(key)
        size += shown["bytes"] if values else 0
        if size >= PAGE_BYTES:
            break
    return keys
