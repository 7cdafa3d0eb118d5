"""The files sender: lines and rows that are on the disk when it says so, in files that appear when they are complete."""

from __future__ import annotations

import fcntl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from route_place import AROUND, event, place_at, until
from route_sender_suite import SenderEnd, SenderSuite
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import loads
from trunkline.routes.ends import Sendable
from trunkline.routes.senders.files import FILES, FilesSenderConfig, Line, compile_line
from trunkline.routes.senders.open_files import GrowingFile, complete_left_behind, new_name


def all_lines(top: Path) -> list[Any]:
    return [loads(line) for file in sorted(top.rglob("[!.]*.jsonl")) for line in file.read_text().splitlines()]


def all_rows(top: Path) -> list[Any]:
    return [row for file in sorted(top.rglob("[!.]*.parquet")) for row in pq.read_table(file).to_pylist()]


def hidden(top: Path) -> list[Path]:
    return sorted(top.rglob(".*.part"))


class ToFiles(SenderEnd):
    plugin = FILES
    top: Path

    def bad(self) -> Sendable:
        return Sendable("bad", Line("x" * 300, "{}"))

    async def arrived(self) -> list[int]:
        return [line["n"] for line in (all_lines if self.config["format"] == "jsonl" else all_rows)(self.top)]

    async def ids(self) -> list[str]:
        return [f"id-{n}" for n in await self.arrived()]  # a line is the payload and nothing else

    async def lose(self) -> None:
        """Where the folder should be there is a file."""
        if self.top.exists():
            self.top.rename(self.top.with_name("away"))
        self.top.write_text("")

    async def mend(self) -> None:
        self.top.unlink()
        away = self.top.with_name("away")
        if away.exists():
            away.rename(self.top)


@pytest.fixture
async def end(tmp_path: Path) -> AsyncIterator[ToFiles]:
    async with place_at() as place:
        end = ToFiles(place, {"path": str(tmp_path / "out"), "format": "jsonl", "rollSeconds": 0.2})
        end.top = tmp_path / "out"
        yield end


class TestLines(SenderSuite):
    async def test_n6_n4_what_is_away_stops_no_opening_and_may_be_tried_again(self, end: SenderEnd) -> None:
        """A file that is open can be written wherever its folder went: so each call here begins one."""
        assert isinstance(end, ToFiles)
        await end.lose()
        sending = await end.open()
        [answer] = await sending.send([end.sendable(0)])
        assert answer is not None
        assert answer.again
        await end.mend()
        assert await sending.send([end.sendable(0)]) == [None]
        await sending.close()
        assert await end.arrived() == [0]


class TestParquet(SenderSuite):
    @pytest.fixture
    async def end(self, end: ToFiles) -> ToFiles:
        end.config |= {"format": "parquet"}
        return end


async def test_a_file_appears_when_it_is_old_or_large_enough(end: ToFiles) -> None:
    end.config |= {"rollSeconds": 3600.0, "rollBytes": 1024}
    sending = await end.open()
    await sending.send([end.sendable(1)])
    assert (all_lines(end.top), len(hidden(end.top))) == ([], 1)
    await sending.send([end.sendable(n) for n in range(2, 200)])
    assert (len(all_lines(end.top)), hidden(end.top)) == (199, [])
    await sending.close()
    end.config["rollSeconds"] = 0.05
    sending = await end.open()
    await sending.send([end.sendable(200)])
    await until(lambda: len(all_lines(end.top)) == 200)
    await sending.close()


async def test_each_folder_has_files_of_its_own_and_two_instances_never_share_one(end: ToFiles) -> None:
    end.config["folder"] = "kind={payload.kind}/{site}"
    message = compile_line(end.model, AROUND)
    one = await end.open()
    end.place = replace(end.place, instance="leaf/b")
    other = await end.open()
    for n, sending in enumerate((one, other, one, other)):
        messages = [Sendable(f"{k}", message(event({"n": n, "kind": k}))) for k in "ab"]
        assert await sending.send(messages) == [None, None]
    await one.close()
    await other.close()
    names = [file.relative_to(end.top) for file in end.top.rglob("*.jsonl")]
    assert sorted(str(name.parent) for name in names) == ["kind=a/leaf"] * 2 + ["kind=b/leaf"] * 2
    assert sorted(line["n"] for line in all_lines(end.top)) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("kind", ["..", "../x", "a/../../x", "/etc", "a//b", ".", ".hidden", "x" * 300, "a\0b", None])
def test_no_event_gets_out_of_the_folder(kind: Any) -> None:
    message = compile_line(FilesSenderConfig(path="/data", folder="{payload.kind}"), AROUND)
    with pytest.raises(Invalid):
        message(event({"kind": kind}))
    assert message(event({"kind": "a/b"})).folder == "a/b"


async def test_a_link_inside_leads_nobody_out(end: ToFiles, tmp_path: Path) -> None:
    end.top.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (end.top / "x").symlink_to(tmp_path / "elsewhere")
    sending = await end.open()
    [answer] = await sending.send([Sendable("1", Line("x", "{}"))])
    await sending.close()
    assert answer is not None
    assert not answer.again
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_was_left_behind_is_completed_without_the_torn_line_unless_somebody_writes_it(tmp_path: Path) -> None:
    left, held, foreign = (tmp_path / new_name(plugin, "i", "t", "jsonl") for plugin in ("p1", "p1", "p2"))
    for path in (left, held, foreign):
        growing = GrowingFile(path, 0.0)
        growing.append(['{"n":1}', '{"n":2}'])
        growing.abandon()
        with path.with_name(f".{path.name}.part").open("a") as file:
            file.write('{"n":')
    with held.with_name(f".{held.name}.part").open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        complete_left_behind(tmp_path, "p1")
    assert left.read_text() == '{"n":1}\n{"n":2}\n'
    assert not held.exists()
    assert not foreign.exists()
    complete_left_behind(tmp_path, "p1")
    assert held.read_text() == '{"n":1}\n{"n":2}\n'
    assert len(hidden(tmp_path)) == 1


async def test_rows_whose_types_do_not_fit_together_get_files_of_their_own(end: ToFiles) -> None:
    end.config["format"] = "parquet"
    message = compile_line(end.model, AROUND)
    payloads = [{"a": 1}, {"a": 2.5, "b": {"c": [1]}}, {"a": "x"}, {"a": {}}, {"a": None}]
    sending = await end.open()
    answers = await sending.send([Sendable(f"{n}", message(event(payload))) for n, payload in enumerate(payloads)])
    await sending.close()
    assert [answer is None for answer in answers] == [True, True, True, False, True]
    assert sorted(str(row["a"]) for row in all_rows(end.top)) == ["1.0", "2.5", "None", "x"]
    for payload in (None, [1], "x", {}):
        with pytest.raises(Invalid, match="not a map"):
            message(event(payload))
