"""The one JSON codec: orjson, sorted keys, so that equal values have equal bytes."""

from __future__ import annotations

from typing import Any

import orjson

from trunkline.core.errors import Invalid


def dumps(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def loads(data: bytes | str, what: str = "JSON document") -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Invalid(what, f"not JSON: {error}", "send a JSON document") from None
