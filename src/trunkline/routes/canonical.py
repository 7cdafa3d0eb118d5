"""The hash of what a route does: ids with equal hashes share one live route.

    K1  Equal values have equal forms: numbers by value (1 and 1.0), maps whatever their order.
    K2  Different values have different forms: each part says its kind and its length before its text, so that no text can
        look like the end of one part and the beginning of the next.
    K3  Defaults count as if they were written.

The hash is 128 bits of BLAKE2b over that form.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from trunkline.core.secret import Secret

HASH_BYTES = 16
_PERSON = b"trunkline routes"  # keeps these hashes apart from all others; a new form of hashes takes another text

_SCALARS = frozenset({str, int, float, bool, type(None)})


@cache
def names(model: type[BaseModel]) -> tuple[tuple[str, str], ...]:
    """Of its fields, each with the one it has in JSON."""
    return tuple((name, field.alias or name) for name, field in model.model_fields.items())


def content_hash(content: Any) -> str:
    """Of a JSON value or a model, in hex."""
    return json_hash(plain(content))


def json_hash(value: Any) -> str:
    parts: list[bytes] = []
    _write(value, parts)
    return hashlib.blake2b(b"".join(parts), digest_size=HASH_BYTES, person=_PERSON).hexdigest()


def plain(value: Any, only_written: bool = False) -> Any:
    """JSON of a model, under the names it has in JSON: with all its defaults, or only what somebody wrote."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, BaseModel):
        wanted = value.model_fields_set if only_written else None
        return {
            shown: plain(getattr(value, name), only_written)
            for name, shown in names(type(value))
            if wanted is None or name in wanted
        }
    if isinstance(value, dict):
        return {str(key): plain(inner, only_written) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, only_written) for inner in value]
    if isinstance(value, Secret):
        return value.reveal() if value.known else value.shown
    if isinstance(value, Enum):
        return value.value
    return to_jsonable_python(value)


def _write(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        parts.append(b"s%d:%s" % (len(text), text))
    elif isinstance(value, dict):
        parts.append(b"m%d:" % len(value))
        for key in sorted(value):
            _write(key, parts)
            _write(value[key], parts)
    elif isinstance(value, list):
        parts.append(b"l%d:" % len(value))
        for inner in value:
            _write(inner, parts)
    else:
        kind, text = _scalar(value)
        parts.append(b"%s%d:%s" % (kind, len(text), text))


def _scalar(value: int | float | bool | None) -> tuple[bytes, bytes]:
    if value is None or isinstance(value, bool):
        return {None: b"n", True: b"t", False: b"f"}[value], b""
    whole = value if isinstance(value, int) else int(value) if value.is_integer() else None
    return (b"i", b"%x" % whole) if whole is not None else (b"d", float(value).hex().encode())
