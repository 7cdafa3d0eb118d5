"""JSON as bytes that are equal for equal values: numbers by value (1 is 1.0), maps whatever the order of their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trunkline.core.jsoncodec import dumps
from trunkline.routes.filters.change import Unusable


def value_bytes(value: Any, path: object) -> bytes:
    try:
        return dumps(_by_value(value))
    except (TypeError, RecursionError) as error:
        raise Unusable(f"{path}: it cannot be written as JSON: {error}") from None


def _by_value(value: Any) -> Any:
    convert = _CONVERT.get(type(value))
    return value if convert is None else convert(value)


_CONVERT: Mapping[type, Callable[[Any], Any]] = {
    float: lambda number: int(number) if number.is_integer() and -(2**63) <= number < 2**64 else number,
    list: lambda items: [_by_value(item) for item in items],
    dict: lambda fields: {key: _by_value(item) for key, item in fields.items()},
}
