"""decode: a text becomes the value that it holds."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, Literal

import orjson
from pydantic import Field

from trunkline.routes.codegen import Code
from trunkline.routes.fields import EventPath, RouteModel
from trunkline.routes.filters.change import TargetPath, Unusable, changing, target
from trunkline.routes.filters.kinds import mismatch
from trunkline.routes.paths import event_path
from trunkline.routes.plugin import Around, Filter, FilterPlugin

Encoding = Literal["base64", "string"]

_LINES = str.maketrans("", "", "\r\n")


class DecodeConfig(RouteModel):
    """Reads a text as base64, and what that holds as JSON. A text that is not such cannot be processed."""

    from_path: EventPath = Field(default="", description="where the text is")
    to_path: TargetPath = Field(default="", description="where its value is set; empty: in place of the text")
    encoding: Encoding = Field(default="base64", description="base64; string: the text is JSON as it is")


def compile_decode(config: DecodeConfig, around: Around) -> Filter:
    code, path, base64 = Code(), event_path(config.from_path), config.encoding == "base64"

    def decode(text: Any) -> Any:
        if type(text) is not str:
            raise Unusable(mismatch(path, "a text", text))
        return _value(_bytes(text, path) if base64 else text, path)

    return changing(code, f"{code.value(decode)}({code.read(path)})", target(config.to_path, config.from_path))


def _bytes(text: str, path: object) -> bytes:
    try:
        return b64decode(text.translate(_LINES), validate=True)
    except ValueError as error:
        raise Unusable(f"{path}: it is not base64: {error}") from None


def _value(json: bytes | str, path: object) -> Any:
    try:
        return orjson.loads(json)
    except orjson.JSONDecodeError as error:
        raise Unusable(f"{path}: what it holds is not JSON: {error}") from None


DECODE = FilterPlugin("decode", DecodeConfig, compile_decode, pure=True)
