"""hash: a digest of a value."""

from __future__ import annotations

import hashlib
import hmac
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from trunkline.core.errors import Invalid
from trunkline.core.reasons import Unfit
from trunkline.core.secret import Secret
from trunkline.routes.codegen import Code
from trunkline.routes.fields import EventPath, RouteModel, Template
from trunkline.routes.filters.byvalue import value_bytes
from trunkline.routes.filters.change import TargetPath, Unusable, changing, target
from trunkline.routes.filters.kinds import mismatch
from trunkline.routes.paths import event_path, tree_source, unknown_constants
from trunkline.routes.plugin import Around, Filter, FilterPlugin

Algorithm = Literal["fnv", "md5", "sha1", "sha256", "hmac-md5", "hmac-sha1", "hmac-sha256"]

_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193
_FNV_REMEMBERED = 16_384  # values: Python takes microseconds for one, and keys come again and again
_FNV_SHORT = 64  # bytes: longer ones are not remembered


class HashConfig(RouteModel):
    """Sets a digest of a value: of a text as it is, of anything else as JSON. Equal values have equal digests."""

    from_path: EventPath = Field(default="", description="what is hashed")
    from_: Template = Field(default="", alias="from", description="a template that gives it; empty: fromPath says where it is")
    to_path: TargetPath = Field(default="", description="where the digest is set; empty: in place of what is at fromPath")
    hash_algorithm: Algorithm = Field(default="md5", description="fnv is FNV-1a with 32 bits")
    key: Secret | None = Field(default=None, description="of the hmac algorithms")
    encoding: Literal["", "hex", "base64"] = Field(
        default="", description="how the digest becomes a text; empty: base64, but fnv stays a number"
    )

    @model_validator(mode="after")
    def _has_its_key(self) -> Self:
        if self.hash_algorithm.startswith("hmac-") and self.key is None:
            raise Unfit(f"{self.hash_algorithm} needs a key", "set key")
        return self


def compile_hash(config: HashConfig, around: Around) -> Filter:
    code, to = Code(), target(config.to_path, config.from_path)
    return changing(code, _digest(code, config, _data(code, config, around)), to)


def _data(code: Code, config: HashConfig, around: Around) -> str:
    """An expression for the bytes that are hashed."""
    what, value, name = config.from_ or event_path(config.from_path), _input(code, config, around), code.local()

    def json(value: Any) -> bytes:
        if value is None:
            raise Unusable(mismatch(what, "a value", value))
        return value_bytes(value, what)

    return f"({name}.encode() if type({name} := {value}) is str else {code.value(json)}({name}))"


def _input(code: Code, config: HashConfig, around: Around) -> str:
    if not config.from_:
        return code.read(event_path(config.from_path))
    if wrong := unknown_constants({"from": config.from_}, around.constants):
        raise Invalid("hash", "; ".join(wrong), "mend this template")
    return tree_source(code, config.from_, around.constants)


def _digest(code: Code, config: HashConfig, data: str) -> str:
    name = config.hash_algorithm.removeprefix("hmac-")
    if name == "fnv":
        number = f"{code.value(fnv)}({data})"
        return _encoded(code, config, f"{number}.to_bytes(4)") if config.encoding else number
    if name == config.hash_algorithm or config.key is None:
        return _encoded(code, config, f"{code.value(_ALGORITHMS[name])}({data}, usedforsecurity=False).digest()")
    key = code.value(config.key.reveal().encode())
    return _encoded(code, config, f"{code.value(hmac.digest)}({key}, {data}, {name!r})")


def _encoded(code: Code, config: HashConfig, digest: str) -> str:
    return f"{digest}.hex()" if config.encoding == "hex" else f"{code.value(b2a_base64)}({digest}, newline=False).decode()"


def fnv(data: bytes) -> int:
    return _remembered_fnv(data) if len(data) <= _FNV_SHORT else _fnv(data)


def _fnv(data: bytes) -> int:
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value


_remembered_fnv = lru_cache(maxsize=_FNV_REMEMBERED)(_fnv)

_ALGORITHMS: Mapping[str, Callable[..., Any]] = {"md5": hashlib.md5, "sha1": hashlib.sha1, "sha256": hashlib.sha256}

HASH = FilterPlugin("hash", HashConfig, compile_hash, pure=True)
