"""Filters that make a value of others, and set it in the event."""

from __future__ import annotations

from typing import Annotated, Any

from trunkline.core.jsoncodec import dumps
from trunkline.routes.codegen import Code
from trunkline.routes.fields import checked
from trunkline.routes.paths import CannotSet, Path, target_path, writer
from trunkline.routes.plugin import Filter

TargetPath = Annotated[str, checked(target_path)]

_EACH = """\
try: append({made})
            except {failed} as error: faults.add(event, str(error))"""
_EVENT = "Event({payload}, {metadata}, event.source, event.entered or (event,))"


class Unusable(Exception):
    """Nothing can be made of this value; as a text it says where it is, what is needed, and what was found."""


def target(to_path: str, from_path: str) -> Path:
    """Where a result is set: at toPath or, if that is empty, in place of what was read."""
    return target_path(to_path or from_path)


def changing(code: Code, value: str, to: Path) -> Filter:
    """Sets the value of an expression, which may raise `Unusable`."""
    return code.filter(_EACH.format(made=_made(code, value, to), failed=code.value((Unusable, CannotSet))))


def _made(code: Code, value: str, to: Path) -> str:
    """Of a path of keys, the maps on the way are copied here, which is the fastest; all else is the writer's work."""
    written = f"{code.value(writer(to))}(event, {value})"
    if not to.segments or not all(isinstance(segment, str) for segment in to.segments):
        return written
    way = [code.read(Path(to.root, to.segments[:depth])) for depth in range(len(to.segments))]
    none = code.value({})
    for name, key in zip(reversed(way), reversed(to.segments), strict=True):
        value = f"{{**({name} or {none}), {key!r}: {value}}}"
    content = {"payload": "event.payload", "metadata": "event.metadata", to.root: value}
    usual = " and ".join(f"(type({name}) is dict or {name} is None)" for name in way)
    return f"{_EVENT.format(**content)} if {usual} else {written}"


def json_bytes(value: Any, path: object) -> bytes:
    try:
        return dumps(value)
    except TypeError as error:
        raise Unusable(f"{path}: it cannot be written as JSON: {error}") from None
