"""The files feed by itself: what is planned, what is read, and what is remembered of it."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from files_feeding import Feeding, write, write_parquet

from trunkline.core.errors import Retryable, Terminal
from trunkline.pipeline.jobs.feeds import file_formats
from trunkline.pipeline.jobs.feeds.file_seen import PlannedFile
from trunkline.pipeline.jobs.feeds.files import admitted, packed
from trunkline.routes.keys import Tenant

MakeFeeding = Callable[..., Feeding]


@pytest.fixture(scope="module")
def database(make_databases: Callable[..., str]) -> str:
    return make_databases("pipeline")


@pytest.fixture
def make_feeding(database: str) -> Iterator[MakeFeeding]:
    made: list[Feeding] = []

    def make(**limits: Any) -> Feeding:
        made.append(Feeding(database, **limits))
        made[-1].conn.execute("TRUNCATE pipeline.file_seen, pipeline.file_failed")
        return made[-1]

    yield make
    for feeding in made:
        feeding.close()


@pytest.fixture
def feeding(make_feeding: MakeFeeding) -> Feeding:
    return make_feeding()


# -- what is read


@pytest.mark.parametrize(
    ("format", "content", "payloads", "lines"),
    [
        ("jsonl", b'{"n":1}\n\n  \r\n[2]\r\n"x"', [{"n": 1}, [2], "x"], [1, 4, 5]),
        ("text", b'{"n":1}\n\n two \r\n', ['{"n":1}', "", " two "], [1, 2, 3]),
        ("json", b'{"n":\n[1,2]}\n', [{"n": [1, 2]}], [1]),
        ("jsonl", b"", [], []),
    ],
)
def test_a_file_is_read_as_its_format_says(
    feeding: Feeding, tmp_path: Path, format: str, content: bytes, payloads: list[Any], lines: list[int]
) -> None:
    path = write(tmp_path, "a.in", content)
    feeding.receive(tmp_path, format=format)
    events = feeding.taken()
    assert [event.payload for event in events] == payloads
    assert [event.metadata for event in events] == [{"files": {"path": str(path), "name": "a.in", "line": n}} for n in lines]
    assert all(event.source.at == pytest.approx(path.stat().st_mtime) for event in events)


def test_rows_of_parquet_are_json_whatever_their_types(feeding: Feeding, tmp_path: Path) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    first = {"n": 0, "at": at, "price": Decimal("1.50"), "raw": b"\xff", "deep": {"list": [1, None]}, "odd": float("nan")}
    write_parquet(tmp_path, "a.parquet", [first, *({**first, "n": n} for n in range(1, 6_000))], row_group=700)
    feeding.receive(tmp_path, format="parquet")
    events = feeding.taken()
    shown = {"at": "2026-01-02T03:04:05Z", "price": "1.50", "raw": "/w==", "deep": {"list": [1, None]}, "odd": None}
    assert events[0].payload == {"n": 0, **shown}
    assert [event.payload["n"] for event in events] == list(range(6_000))
    assert [event.metadata["files"]["line"] for event in events] == list(range(1, 6_001))


def test_what_is_no_json_comes_as_a_text_that_says_so(feeding: Feeding, tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", b'{"n":1}\n<xml/>\n\xff{\n')
    feeding.receive(tmp_path)
    events = feeding.taken()
    assert [(event.payload, event.metadata["files"].get("text")) for event in events] == [
        ({"n": 1}, None),
        ("<xml/>", True),
        ("\ufffd{", True),
    ]


def test_a_packed_file_is_unpacked(feeding: Feeding, tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl.gz", gzip.compress(b'{"n":1}\n{"n":2}\n'))
    feeding.receive(tmp_path)
    assert [event.payload["n"] for event in feeding.taken()] == [1, 2]


def test_a_large_file_is_read_in_parts_and_every_line_is_whole(feeding: Feeding, tmp_path: Path) -> None:
    long = "x" * (3 << 20)  # over several blocks
    write(tmp_path, "a.jsonl", *({"n": n} for n in range(12_000)), {"n": 12_000, "long": long}, {"n": 12_001}, {"n": 12_002})
    feeding.receive(tmp_path)
    body = feeding.planned()
    (piece,) = feeding.feed.pieces(body, 2)
    parts = [events for _, events in feeding.feed.read(piece, feeding.receivers)]
    assert max(map(len, parts)) <= file_formats.AT_ONCE
    events = [event for part in parts for event in part]
    assert [event.payload["n"] for event in events] == list(range(12_003))
    assert [event.metadata["files"]["line"] for event in events] == list(range(1, 12_004))
    assert events[12_000].payload["long"] == long


# -- what is planned


def test_hidden_files_folders_and_other_names_are_left_alone(feeding: Feeding, tmp_path: Path) -> None:
    for name in (".half.jsonl", "_half.jsonl", "a.txt", "b.jsonl", "A.JSONL"):
        (tmp_path / name).write_bytes(b"1\n")
    write(tmp_path / "below.jsonl", "c.jsonl", 1)
    feeding.receive(tmp_path, pattern="*.jsonl")
    assert feeding.names(feeding.planned()) == ["b.jsonl"]


def test_files_go_by_their_time_then_by_name(feeding: Feeding, tmp_path: Path) -> None:
    for name, at in (("c", 5), ("a", 9), ("b", 5), ("d", 1)):
        os.utime(write(tmp_path, name, name), (at, at))
    feeding.receive(tmp_path)
    assert [event.payload for event in feeding.taken()] == ["d", "b", "c", "a"]


def test_as_many_files_are_planned_as_the_receiver_says(feeding: Feeding, tmp_path: Path) -> None:
    for n in range(5):
        write(tmp_path, f"{n}", n)
    feeding.receive(tmp_path, max_files=2)
    assert [[event.payload for event in feeding.taken()] for _ in range(3)] == [[0, 1], [2, 3], [4]]
    assert feeding.nothing_more()


def file(name: str, size: int, receiver: str = "r", at: int = 0) -> PlannedFile:
    return PlannedFile(receiver, name, size, at)


def test_receivers_take_turns_within_the_bytes_of_a_batch_and_a_large_file_goes_alone() -> None:
    many, few = [file(f"a{n}", 10, "a") for n in range(9)], [file("b0", 10, "b")]
    assert [one.path for one in admitted([many, few], 40, 0)] == ["a0", "a1", "a2", "b0"]
    large, small = [file("a", 100, "a")], [file("b", 1, "b")]
    assert [[one.path for one in admitted([large, small], 40, turn)] for turn in (0, 1)] == [["a"], ["b"]]
    assert admitted([], 40, 0) == []


def test_tasks_get_runs_of_files_of_about_the_same_size() -> None:
    files = [file(f"{n:02}", (n % 7) << 20) for n in range(40)]
    pieces = packed(files, 4)
    assert [one for piece in pieces for one in piece] == files
    assert len(pieces) == 4
    sizes = [sum(one.size for one in piece) for piece in pieces]
    assert max(sizes) - min(sizes) <= 2 * max(one.size for one in files)
    assert len(packed([file("a", 10), file("b", 0)], 4)) == 1, "little is one task's"
    assert packed([], 4) == []


def test_a_folder_that_is_not_there_stops_no_other(feeding: Feeding, tmp_path: Path) -> None:
    feeding.receive(tmp_path / "later")
    feeding.receive(tmp_path / "now")
    write(tmp_path / "now", "a", 1)
    assert [event.payload for event in feeding.taken()] == [1]
    write(tmp_path / "later", "b", 2)
    assert [event.payload for event in feeding.taken()] == [2]


# -- what is remembered


def test_h28_what_was_read_is_known_to_the_database_alone_and_is_not_read_again(feeding: Feeding, tmp_path: Path) -> None:
    write(tmp_path, "a", 1)
    feeding.receive(tmp_path)
    body = feeding.planned()
    feeding.again()
    assert feeding.planned() == body, "it was planned, and not done"
    feeding.move(body)
    feeding.again()
    assert feeding.nothing_more()
    with pytest.raises(Terminal, match="read before"):
        feeding.move(body)


def test_a_file_that_is_written_anew_is_read_again_with_other_ids(feeding: Feeding, tmp_path: Path) -> None:
    write(tmp_path, "a", 1, 2)
    feeding.receive(tmp_path)
    body = feeding.planned()
    first = [event.source.id for event in feeding.read(body)]
    assert [event.source.id for event in feeding.read(body)] == first
    feeding.move(body)
    write(tmp_path, "a", 1, 2)
    second = [event.source.id for event in feeding.taken()]
    assert len({*first, *second}) == 4


def test_receivers_that_read_the_same_share_what_they_have_seen_and_others_do_not(feeding: Feeding, tmp_path: Path) -> None:
    write(tmp_path, "a", 1)
    feeding.receive(tmp_path, "one")
    feeding.receive(tmp_path, "as text", format="text")
    feeding.receive(tmp_path, "other tenant", Tenant("other", "app"))
    body = feeding.planned()
    assert {name: [event.payload for event in feeding.read(body, name)] for name in feeding.receivers} == {
        "one": [1],
        "as text": ["1"],
        "other tenant": [1],
    }
    feeding.move(body)
    feeding.receive(tmp_path, "two", max_files=7)
    assert feeding.nothing_more()
    write(tmp_path, "b", 2)
    body = feeding.planned()
    assert (
        [event.payload for event in feeding.read(body, "one")] == [event.payload for event in feeding.read(body, "two")] == [2]
    )


def test_files_that_are_gone_for_a_week_are_forgotten(feeding: Feeding, tmp_path: Path) -> None:
    for name in ("stays", "goes"):
        write(tmp_path, name, 1)
    feeding.receive(tmp_path)
    feeding.taken()
    (tmp_path / "goes").rename(tmp_path / ".goes")
    feeding.again()
    feeding.next()
    missed = "SELECT path LIKE '%%goes', missed_at IS NOT NULL FROM pipeline.file_seen ORDER BY 1"
    assert feeding.rows(missed) == [(False, False), (True, True)]
    (tmp_path / ".goes").rename(tmp_path / "goes")
    feeding.again()
    assert feeding.nothing_more(), "it came back within the week"
    assert feeding.rows(missed) == [(False, False), (True, False)]
    (tmp_path / "goes").unlink()
    feeding.conn.execute("UPDATE pipeline.file_seen SET missed_at = now() - interval '8 days' WHERE path LIKE '%goes'")
    feeding.again()
    feeding.next()
    assert len(feeding.rows("SELECT 1 FROM pipeline.file_seen")) == 1
    write(tmp_path, "goes", 2)
    assert [event.payload for event in feeding.taken()] == [2]


def test_what_was_read_is_fetched_once_by_the_process_that_plans(feeding: Feeding, tmp_path: Path) -> None:
    write(tmp_path, "a", 1)
    feeding.receive(tmp_path)
    feeding.taken()
    assert feeding.nothing_more()
    feeding.conn.execute("TRUNCATE pipeline.file_seen")
    assert feeding.nothing_more(), "it does not ask for all of it again"
    feeding.again()
    assert feeding.names(feeding.planned()) == ["a"]


# -- files that change, or cannot be read


@pytest.mark.parametrize("befall", ["gone", "grown"])
def test_a_planned_file_that_is_not_what_it_was_is_refused_and_planned_anew(
    feeding: Feeding, tmp_path: Path, befall: str
) -> None:
    write(tmp_path, "a", 1)
    write(tmp_path, "b", 2)
    feeding.receive(tmp_path)
    body = feeding.planned()
    assert feeding.next(body) == body
    (tmp_path / "a").unlink() if befall == "gone" else (tmp_path / "a").write_bytes(b"1\n1\n")
    with pytest.raises(Retryable, match="gone" if befall == "gone" else "changed"):
        feeding.read(body)
    with pytest.raises(Retryable):
        feeding.move(body)
    feeding.again()
    assert feeding.next(body) is None
    assert feeding.names(feeding.next()) == ["b"], "what changed must rest first"
    assert [event.payload for event in feeding.taken()] == [2]
    if befall == "grown":
        assert [event.payload for event in feeding.taken()] == [1, 1]


@pytest.mark.parametrize(
    ("name", "format", "content", "reason"),
    [
        ("a.parquet", "parquet", b"no parquet", "Parquet"),
        ("a.jsonl.gz", "jsonl", b"no gzip", "zlib"),
        ("a.json", "json", b"1" * 200, "larger than"),
        ("a.jsonl", "jsonl", b"1\n" * 3 + b"1" * 200, "line 4 is larger"),
    ],
)
def test_a_file_that_cannot_be_read_is_passed_with_its_reason(
    feeding: Feeding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, format: str, content: bytes, reason: str
) -> None:
    monkeypatch.setattr(file_formats, "MOST_BYTES", 100)
    write(tmp_path, name, content)
    feeding.receive(tmp_path, format=format)
    feeding.taken()
    ((failed, why),) = feeding.failed()
    assert failed == name
    assert reason in why
    assert feeding.nothing_more()
    if format != "parquet" and not name.endswith("gz"):
        write(tmp_path, name, b"1")
        assert [event.payload for event in feeding.taken()] == [1]
        assert feeding.failed() == []


def test_of_a_file_that_is_broken_in_the_middle_the_part_before_is_read(feeding: Feeding, tmp_path: Path) -> None:
    path = write_parquet(tmp_path, ".a", [{"n": n} for n in range(30_000)], row_group=10_000)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 2_000] = bytes(2_000)
    write(tmp_path, "a.parquet", bytes(content))
    feeding.receive(tmp_path, format="parquet")
    events = feeding.taken()
    assert [event.payload["n"] for event in events] == list(range(len(events)))
    assert 10_000 <= len(events) < 30_000
    ((_, why),) = feeding.failed()
    assert f"{len(events)} events were read before" in why


def test_bytes_that_cannot_be_had_are_tried_again(tmp_path: Path) -> None:
    class Away:
        """A store that answers, and then does not."""

        def open_input_stream(self, path: str, compression: str | None = "detect") -> Any:
            raise OSError("the network is away")

    with pytest.raises(Retryable, match="the network is away"):
        list(file_formats.read_rows(Away(), "a", "jsonl"))
