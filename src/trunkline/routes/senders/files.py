from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from pydantic import Field

from trunkline.core.errors import Invalid
from trunkline.core.scalars import Number, Whole
from trunkline.routes.ends import Place, Sending
from trunkline.routes.event import Event
from trunkline.routes.fields import RouteModel, Template
from trunkline.routes.paths import compile_tree
from trunkline.routes.plugin import Around, Runs, SenderPlugin
from trunkline.routes.senders.extras import needs
from trunkline.routes.senders.folders import check_folder
from trunkline.routes.senders.prepared import json_of, text_of


class FilesSenderConfig(RouteModel):
    """Payloads in files of a folder. A file appears under its name when it is complete; until then it is hidden, and survives
    a crash. Parquet needs payloads that are maps, and the extra `pipeline`; each batch becomes a file of its own."""

    path: str = Field(min_length=1, examples=["/data/out"], description="the folder")
    folder: Template = Field(default="", examples=["kind={payload.kind}"], description="a folder below it, by the event")
    format: Literal["jsonl", "parquet"] = Field(
        default="jsonl", description="jsonl: an event per line; parquet: an event per row"
    )
    roll_bytes: Whole = Field(default=64 << 20, ge=1024, description="a file that is larger is closed, and another begun")
    roll_seconds: Number = Field(default=60.0, gt=0, le=86_400, description="so is one that is older")


class Line(msgspec.Struct, frozen=True):
    folder: str
    json: str


def compile_line(config: FilesSenderConfig, around: Around) -> Callable[[Event], Line]:
    folder_of = compile_tree(config.folder, around.constants)
    what = "file"

    def send(event: Event) -> Line:
        if config.format == "parquet" and not (isinstance(event.payload, dict) and event.payload):
            raise Invalid(what, "the payload is not a map with values", "send an event that is one, or write jsonl")
        folder = check_folder(what, text_of(f"{what}: folder", folder_of(event)))
        return Line(folder, json_of(what, event.payload))

    return send


async def _open(config: FilesSenderConfig, place: Place) -> Sending:
    if config.format == "parquet":
        needs("pyarrow", "the sender files with Parquet")
    from trunkline.routes.senders.files_sending import FilesSending

    return FilesSending(config, place)


FILES = SenderPlugin("files", FilesSenderConfig, Runs.BOTH, compile_line, Line, _open)
