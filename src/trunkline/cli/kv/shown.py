"""Keys and values as the commands print them: harmless for a terminal, and short."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import typer

from trunkline.store.values import is_bound

_LONGEST = 72


def data_of(value: dict[str, Any]) -> bytes:
    text = value.get("text")
    return text.encode() if isinstance(text, str) else base64.b64decode(value.get("base64", ""))


def harmless(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(text: str, longest: int = _LONGEST) -> str:
    plain = harmless(text)
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"


def preview(key: str, value: dict[str, Any]) -> str:
    if is_bound(key) and ("text" in value or "base64" in value):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            return shortened(msgspec.json.encode(msgspec.msgpack.decode(data_of(value))).decode())
    if "text" in value:
        return shortened(str(value["text"]))
    return f"(base64) {shortened(str(value['base64']))}" if "base64" in value else ""


def ttl(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "never ends"
    units = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"))
    size, unit = next(((size, unit) for size, unit in units if milliseconds >= 2 * size), (1000, "s"))
    return f"{milliseconds / size:.1f}{unit}"


def print_json(found: Any) -> None:
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False))


def print_table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Lines that programs can cut, too: no frame, and wider than the terminal where it must be."""
    widths = [max(len(row[n]) for row in (columns, *rows)) for n in range(len(columns))]
    for row in (columns, *rows):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_refusal(what: str, why: str, next_step: str) -> None:
    typer.echo(f"no: {harmless(what)}: {harmless(why)}\n  next: {harmless(next_step)}", err=True)
