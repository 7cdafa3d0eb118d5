"""What is in a file, as rows of JSON, some thousand at a time and never all at once.

Who is to blame when that fails: a file whose bytes can be had but not understood is wrong itself (`Invalid`), and so is one
that may not be opened. When its bytes cannot be had, another try may help (`Retryable`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow.parquet as pq

from trunkline.core.errors import Invalid, Retryable, TrunklineError
from trunkline.routes.receivers.reading import read_or_text

AT_ONCE = 5_000  # rows: with many routes each gets few of them, and a call for each
MOST_BYTES = 64 << 20  # of one row: a task holds it several times over
_BLOCK = 1 << 20
_MEND = "write it anew, under the same name or another: then it is read again"


class Row(msgspec.Struct, frozen=True):
    """`number`: of its line or row, from 1 on. `text`: it should be JSON, and is not."""

    number: int
    payload: Any
    text: bool = False


Rows = Iterator[list[Row]]


def read_rows(system: Any, path: str, format: str) -> Rows:
    """Packed files (.gz, .bz2, .zst, .lz4) are unpacked, except Parquet, which does that itself."""
    try:
        yield from _FORMATS[format](system, path)
    except TrunklineError:
        raise
    except FileNotFoundError as error:
        raise Retryable(f"file {path}", "it is not there any more", "it is planned without it") from error
    except PermissionError as error:
        raise Invalid(f"file {path}", "it may not be opened", _MEND) from error
    except Exception as error:
        raise _blamed(system, path, f"{type(error).__name__}: {' '.join(str(error).split())}") from error


def _jsonl(system: Any, path: str) -> Rows:
    for lines in _lines(system, path):
        yield [_json_row(number, line) for number, line in lines if line.strip()]


def _text(system: Any, path: str) -> Rows:
    for lines in _lines(system, path):
        yield [Row(number, line.decode(errors="replace")) for number, line in lines]


def _json(system: Any, path: str) -> Rows:
    with system.open_input_stream(path) as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise _too_long(path, "it")
    yield [_json_row(1, data)]


def _parquet(system: Any, path: str) -> Rows:
    with system.open_input_file(path) as file, pq.ParquetFile(file) as parquet:
        number = 1
        for batch in parquet.iter_batches(AT_ONCE):
            rows = msgspec.json.decode(msgspec.json.encode(batch.to_pylist(), enc_hook=_shown))
            yield [Row(n, payload) for n, payload in enumerate(rows, number)]
            number += len(rows)


_FORMATS: dict[str, Callable[[Any, str], Rows]] = {"jsonl": _jsonl, "text": _text, "json": _json, "parquet": _parquet}


def _lines(system: Any, path: str) -> Iterator[list[tuple[int, bytes]]]:
    """With their numbers, without their ends."""
    number, rest = 1, b""
    with system.open_input_stream(path) as stream:
        while block := stream.read(_BLOCK):
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > MOST_BYTES:
                raise _too_long(path, f"line {number + len(lines)}")
            for first in range(0, len(lines), AT_ONCE):
                yield _numbered(lines[first : first + AT_ONCE], number + first)
            number += len(lines)
    if rest:
        yield _numbered([rest], number)


def _numbered(lines: list[bytes], first: int) -> list[tuple[int, bytes]]:
    return [(number, line.removesuffix(b"\r")) for number, line in enumerate(lines, first)]


def _json_row(number: int, data: bytes) -> Row:
    payload, is_json = read_or_text(data)
    return Row(number, payload, not is_json)


def _shown(value: Any) -> str:
    """Times with nanoseconds, and whatever else JSON has no word for."""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _too_long(path: str, what: str) -> Invalid:
    return Invalid(f"file {path}", f"{what} is larger than {MOST_BYTES >> 20} MiB", _MEND)


def _blamed(system: Any, path: str, reason: str) -> TrunklineError:
    try:
        with system.open_input_stream(path, compression=None) as stream:
            while stream.read(_BLOCK):
                pass
    except Exception:
        return Retryable(f"file {path}", reason, "it is tried again")
    return Invalid(f"file {path}", reason, _MEND)
