"""Large JSON documents, parsed a piece at a time: a hundred thousand routes as maps would take some hundred megabytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from trunkline.core.jsoncodec import loads

_WHOLE = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])


class Unread(list[Any]):
    """A JSON array whose elements are parsed whenever they are asked for, and not kept."""

    def __getitem__(self, at: Any) -> Any:
        return loads(bytes(super().__getitem__(at)))

    def __iter__(self) -> Iterator[Any]:
        return (loads(bytes(raw)) for raw in super().__iter__())


def unread(data: bytes, what: str) -> Any:
    """As `loads`; of a map or an array, the arrays directly inside are unread."""
    try:
        whole = _WHOLE.decode(data)
    except msgspec.DecodeError:
        return loads(data, what)
    return Unread(whole) if isinstance(whole, list) else {key: _value(raw, what) for key, raw in whole.items()}


def _value(raw: msgspec.Raw, what: str) -> Any:
    try:
        return Unread(_ARRAY.decode(raw))
    except msgspec.DecodeError:
        return loads(bytes(raw), what)
