"""encode: a value becomes a text that holds it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from pydantic import Field

from trunkline.routes.codegen import Code
from trunkline.routes.fields import EventPath, RouteModel
from trunkline.routes.filters.change import TargetPath, Unusable, changing, json_bytes, target
from trunkline.routes.filters.decode import Encoding
from trunkline.routes.filters.kinds import mismatch
from trunkline.routes.paths import event_path
from trunkline.routes.plugin import Around, Filter, FilterPlugin


class EncodeConfig(RouteModel):
    """Writes a value as JSON, and that as base64. An event without a value there cannot be processed."""

    from_path: EventPath = Field(default="", description="what is encoded")
    to_path: TargetPath = Field(default="", description="where the text is set; empty: in place of what is at fromPath")
    encoding: Encoding = Field(default="base64", description="base64; string: the JSON as it is")


def compile_encode(config: EncodeConfig, around: Around) -> Filter:
    code, path, base64 = Code(), event_path(config.from_path), config.encoding == "base64"

    def encode(value: Any) -> str:
        if value is None:
            raise Unusable(mismatch(path, "a value", value))
        json = json_bytes(value, path)
        return (b64encode(json) if base64 else json).decode()

    return changing(code, f"{code.value(encode)}({code.read(path)})", target(config.to_path, config.from_path))


ENCODE = FilterPlugin("encode", EncodeConfig, compile_encode, pure=True)
