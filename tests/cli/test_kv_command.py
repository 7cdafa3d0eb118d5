"""`trunkline kv` against a real API over a real store: what it prints, and how it ends."""

from __future__ import annotations

import base64
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from click.testing import CliRunner, Result

from memory_store import MemoryStore, served
from trunkline.api.tokens import hash_of
from trunkline.cli.kv.differences import differences
from trunkline.cli.kv.shown import harmless, preview, ttl
from trunkline.cli.kv.snoop import line_of
from trunkline.cli.main import app
from trunkline.core.config import Role, TokenConfig
from trunkline.core.errors import Invalid, TrunklineError
from trunkline.core.secret import Secret
from trunkline.node.sitecore import NODE_RECORDS, NodeRecord
from trunkline.store.values import MAX_VALUE
from waiting import eventually


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def url(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with served(store) as url:
        monkeypatch.setenv("TRUNKLINE_API_URL", url)
        yield url


COMMAND = typer.main.get_command(app)  # made once: it takes longer than most commands do


def kv(*words: str, given: bytes | None = None) -> Result:
    return CliRunner().invoke(COMMAND, ["kv", *words], input=given)


def told(*words: str, ends_with: int = 0) -> str:
    done = kv(*words)
    assert done.exit_code == ends_with, (done.output, done.exception)
    return done.stdout


def document(*words: str, ends_with: int = 0) -> Any:
    return json.loads(told(*words, "--json", ends_with=ends_with))


# -- keys


@pytest.mark.usefixtures("url")
class TestKeys:
    def test_what_was_set_is_got_refreshed_and_erased(self, store: MemoryStore) -> None:
        assert told("set", "app/lamp", "on", "--ttl", "30s") == "taken: app/lamp, version 1\n"
        assert told("get", "app/lamp") == "on"
        assert 29_000 < document("get", "app/lamp")["ttl_ms"] <= 30_000
        assert told("refresh", "app/lamp", "--ttl", "2m") == "refreshed: app/lamp\n"
        assert document("get", "app/lamp")["ttl_ms"] > 110_000
        assert told("refresh", "app/lamp", "--ttl", "never") == "refreshed: app/lamp\n"
        assert document("get", "app/lamp")["ttl_ms"] is None
        assert told("erase", "app/lamp") == "erased: app/lamp\n"
        assert store.get("fleet", "app/lamp") is None

    def test_what_is_not_there_ends_with_1_and_says_what_to_do(self) -> None:
        for words in (["get", "x"], ["erase", "x"], ["refresh", "x", "--ttl", "1s"], ["clear", "x"]):
            done = kv(*words)
            assert (done.exit_code, done.stdout) == (1, "")
            assert done.stderr.startswith("no: key 'x': ")
            assert "\n  next: " in done.stderr

    def test_any_key_will_do(self) -> None:
        keys = ["..", "50%", "a\nb", "a b", "a/b", "a?b#c&d", "ключ"]
        for key in keys:
            told("set", key, key)
            assert told("get", key) == key
        assert document("keys") == {"fleet": sorted(keys)}
        assert document("erase", *keys)["erased"] == keys
        assert document("keys") == {"fleet": []}

    def test_a_value_comes_from_a_file_or_from_standard_input_and_goes_out_as_it_is(self, tmp_path: Path) -> None:
        (tmp_path / "raw").write_bytes(b"\xff\x00\n")
        told("set", "raw", f"@{tmp_path / 'raw'}")
        assert kv("get", "raw").stdout_bytes == b"\xff\x00\n"
        assert kv("set", "typed", "-", given="größe\n".encode()).exit_code == 0
        assert kv("get", "typed").stdout_bytes == "größe\n".encode()
        missing = kv("set", "raw", f"@{tmp_path / 'none'}").exception
        assert isinstance(missing, Invalid)
        assert "No such file" in missing.why

    def test_a_refused_value_ends_with_1_and_its_reason(self) -> None:
        told("set", "x", "b", "--version", "5")
        done = kv("set", "x", "a", "--version", "4")
        assert done.exit_code == 1
        assert done.stderr.startswith("no: key 'x': old_version: a higher version is stored\n  next: ")
        refused = document("set", "node:lyon/node-1", "a", ends_with=1)
        assert (refused["taken"], refused["why"].partition(":")[0]) == (False, "not_the_owner")
        assert "too_large" in document("set", "x", "y" * (MAX_VALUE + 1), ends_with=1)["why"]
        assert told("get", "x") == "b"

    def test_some_of_several_are_refused(self) -> None:
        told("set", "a", "1")
        done = kv("refresh", "a", "b", "--ttl", "1m")
        assert (done.exit_code, done.stdout) == (1, "refreshed: a\n")
        assert "key 'b'" in done.stderr
        assert document("erase", "a", "b", ends_with=1)["erased"] == ["a"]

    def test_a_kept_key_is_listed_and_cleared(self, store: MemoryStore) -> None:
        assert told("set", "app/x", "on", "--keep", "persist", "--ttl", "20s") == "taken: app/x, written in a moment\n"
        store.tick()
        assert told("own").split() == ["key", "keep", "version", "ttl", "bytes", "app/x", "persist", "1", "20.0s", "2"]
        assert document("own")["app/x"]["keep"] == "persist"
        assert told("clear", "app/x") == "cleared: app/x\n"
        assert document("own") == {}

    def test_keys_and_dump_are_filtered_over_one_or_all_areas(self, store: MemoryStore) -> None:
        store.write("app/a", b"1", originator="rome/node-1", ttl_ms=90_000)
        store.write("app/b", b"\xff", version=7)
        store.write("web/c", b"3")
        told("set", "d", "4", "--area", "site:paris")
        assert told("keys", "--prefix", "app/") == "app/a\napp/b\n"
        assert told("keys", "--key", ".*/[bc]") == "app/b\nweb/c\n"
        assert told("keys", "--prefix", "app/", "--originator", "lyon/node-1", "--both") == "app/b\n"
        assert told("keys", "--area", "*").splitlines() == [
            "fleet  app/a", "fleet  app/b", "fleet  web/c", "site:paris  d",
        ]  # fmt: skip
        lines = told("dump", "--prefix", "app/").splitlines()
        assert lines[0].split() == ["key", "version", "originator", "ttl", "bytes", "value"]
        assert lines[1].split()[:3] == ["app/a", "1", "rome/node-1"]
        assert lines[2].split() == ["app/b", "7", "lyon/node-1", "never", "ends", "1", "(base64)", "/w=="]
        assert document("dump", "--area", "*")["site:paris"]["d"]["text"] == "4"
        assert "text" not in document("dump", "--no-values")["fleet"]["app/a"]

    def test_more_keys_than_one_page_has(self, store: MemoryStore) -> None:
        for number in range(2_300):
            store.write(f"k{number:04}", b"x")
        assert document("keys")["fleet"] == [f"k{number:04}" for number in range(2_300)]

    def test_what_a_value_holds_cannot_harm_a_terminal(self) -> None:
        told("set", "bad\x1b[2Jkey", "\x1b]0;owned\x07")
        assert "\x1b" not in told("dump") + told("keys")
        assert r"\x1b]0;owned\x07" in told("dump")


# -- looking after it


@pytest.mark.usefixtures("url")
class TestLooking:
    def test_summary_and_signature(self, store: MemoryStore) -> None:
        empty = told("signature")
        store.write("a", b"123")
        lines = told("summary", "--counters").splitlines()
        assert [line.split()[:3] for line in lines[:4]] == [
            ["area", "keys", "bytes"], ["fleet", "1", "3"], ["plant-1", "0", "0"], ["site:paris", "0", "0"],
        ]  # fmt: skip
        assert ["fleet", "updated_key_vals", "1"] in [line.split() for line in lines]
        assert document("summary")["fleet"]["keys"] == 1
        assert told("signature") != empty
        assert document("signature", "--prefix", "b")["signature"] == empty.strip()

    def test_peers_are_added_listed_and_deleted(self) -> None:
        assert told("peers").split()[:3] == ["peer", "state", "since"]
        assert told("add-peer", "lyon/node-1", "lyon.example.com:7400") == "added: lyon/node-1 at lyon.example.com:7400\n"
        line = told("peers", ends_with=1).splitlines()[1]
        assert line.split()[:4] == ["lyon/node-1", "idle,", "no", "link"]
        assert document("peers", ends_with=1)["lyon/node-1"]["addresses"] == ["lyon.example.com:7400"]
        assert told("delete-peer", "lyon/node-1") == "deleted: lyon/node-1\n"
        told("delete-peer", "lyon/node-1", ends_with=1)

    def test_an_area_the_node_is_not_in_is_an_error_that_names_those_it_is_in(self) -> None:
        for words in (["get", "x"], ["keys"], ["peers"], ["own"], ["signature"], ["snoop"], ["compare"], ["set", "x", "1"]):
            error = kv(*words, "--area", "site:lyon").exception
            assert isinstance(error, TrunklineError), words
            assert error.what == "area 'site:lyon'"
            assert error.next_step == "ask for one of fleet, plant-1, site:paris"

    @pytest.mark.parametrize(
        "words",
        [["keys", "--key", "("], ["set", "x", "1", "--ttl", "soon"], ["add-peer", "lyon", "h:1"], ["add-peer", "a/b", "h"],
         ["get", ""], ["snoop", "--duration", "x"], ["snoop", "--key", "("]],
    )  # fmt: skip
    def test_a_mistake_is_an_error_with_a_next_step(self, words: list[str]) -> None:
        error = kv(*words).exception
        assert isinstance(error, TrunklineError)
        assert error.next_step


# -- which node, and who asks


def test_without_a_node_to_ask_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUNKLINE_API_URL", raising=False)
    error = kv("keys").exception
    assert isinstance(error, Invalid)
    assert "TRUNKLINE_API_URL" in error.next_step


@pytest.mark.parametrize("url", ["ftp://h:1", "http://", "h:x"])
def test_what_is_no_url_is_refused(url: str) -> None:
    error = kv("get", "x", "--url", url).exception
    assert isinstance(error, Invalid)
    assert error.next_step == "write it like http://127.0.0.1:8400"


def test_a_node_that_cannot_be_asked_is_one_line_and_ends_with_2() -> None:
    words = [sys.executable, "-m", "trunkline.cli.main", "kv", "get", "x", "--url", "http://127.0.0.1:1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 2
    assert "next: " in done.stderr


def test_the_address_alone_is_enough_and_tokens_come_from_a_file_or_the_variable(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRUNKLINE_API_TOKEN", raising=False)
    (tmp_path / "token").write_text("tl_reader\n")
    tokens = (TokenConfig(name="reader", sha256=Secret(hash_of(b"tl_reader")), role=Role.READ),)
    with served(store, tokens=tokens) as url:
        bare = url.removeprefix("http://")
        assert kv("keys", "--url", bare, "--token", f"@{tmp_path / 'token'}").exit_code == 0
        refused = kv("keys", "--url", bare).exception
        assert isinstance(refused, TrunklineError)
        assert "there is no token" in refused.why
        monkeypatch.setenv("TRUNKLINE_API_TOKEN", "tl_reader")
        assert kv("keys", "--url", bare).exit_code == 0
        forbidden = kv("set", "a", "1", "--url", bare).exception
        assert isinstance(forbidden, TrunklineError)
        assert "role write" in forbidden.next_step
        gone = kv("keys", "--url", bare, "--token", "@nowhere").exception
        assert isinstance(gone, Invalid)


# -- compare


def value(version: int, originator: str = "a/1", hash_: str = "00") -> dict[str, Any]:
    return {"version": version, "originator": originator, "hash": hash_}


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ([value(1), value(1)], []),
        ([value(1), None], [("1", "missing")]),
        ([value(2, hash_="02"), value(1, hash_="01")], [("1", "older")]),
        ([value(1, "b/1", "02"), value(1, "a/1", "01")], [("1", "older")]),
        ([value(1, hash_="02"), value(1, hash_="01")], [("0", "other value"), ("1", "other value")]),
        ([value(2, hash_="02"), value(2, hash_="02"), value(1, hash_="01"), None], [("2", "older"), ("3", "missing")]),
        ([value(2, hash_="02"), value(2, hash_="03"), None], [("0", "other value"), ("1", "other value"), ("2", "missing")]),
    ],
)
def test_what_differs_and_where(there: list[dict[str, Any] | None], found: list[tuple[str, str]]) -> None:
    nodes = {str(n): {"same": value(9)} | ({"k": one} if one else {}) for n, one in enumerate(there)}
    assert [(one.node, one.what) for one in differences(nodes)] == found
    assert all(one.key == "k" for one in differences(nodes))


@pytest.fixture
def two(store: MemoryStore, url: str) -> Iterator[tuple[MemoryStore, str]]:
    other = MemoryStore("rome/node-1")
    with served(other) as there:
        for one in (store, other):
            one.write("app/a", b"1")
            one.write("app/b", b"1", version=3)
        yield other, there


def test_nodes_that_have_the_same_are_equal_whatever_the_ttl(url: str, two: tuple[MemoryStore, str]) -> None:
    two[0].refresh("fleet", {"app/a": 60_000})
    told_ = told("compare", "--node", url, "--node", two[1])
    assert told_ == "fleet: 2 keys at 2 nodes: all the same\n"


def test_keys_that_differ_are_named_with_node_and_kind(url: str, two: tuple[MemoryStore, str]) -> None:
    other, there = two
    other.write("app/b", b"2", version=4)
    other.write("app/new", b"1")
    found = document("compare", "--node", url, "--node", there, "--settle", "0", ends_with=1)
    assert found["equal"] is False
    assert found["nodes"] == {url: {"keys": 2}, there: {"keys": 3}}
    assert [(one["key"], one["node"], one["what"]) for one in found["differences"]] == [
        ("app/b", url, "older"), ("app/new", url, "missing"),
    ]  # fmt: skip
    lines = told("compare", "--node", url, "--node", there, "--settle", "0", ends_with=1).splitlines()
    assert lines[1].split(maxsplit=2) == ["app/b", url, "older: version 3 of lyon/node-1, the best is 4"]
    assert lines[-1] == "fleet: 3 keys at 2 nodes: 2 differ"
    assert told("compare", "--node", url, "--node", there, "--prefix", "app/a").endswith("all the same\n")


def test_what_was_on_its_way_is_looked_at_once_more(store: MemoryStore, url: str, two: tuple[MemoryStore, str]) -> None:
    other, there = two
    other.write("app/late", b"1")
    asked = threading.Event()
    answer = other.dump

    def noticing(*args: Any) -> Any:
        asked.set()
        return answer(*args)

    other.dump = noticing  # type: ignore[method-assign]

    def arrive() -> None:
        assert asked.wait(30)
        store.write("app/late", b"1")

    late = threading.Thread(target=arrive)
    late.start()
    assert told("compare", "--node", url, "--node", there, "--settle", "0.5").endswith("all the same\n")
    late.join()


def test_a_node_that_does_not_answer_is_said_and_is_not_equal(url: str) -> None:
    lines = told("compare", "--node", url, "--node", "http://127.0.0.1:1", ends_with=1).splitlines()
    assert lines[0].startswith("http://127.0.0.1:1 does not answer: API at http://127.0.0.1:1: it cannot be reached")
    assert lines[-1] == "fleet: 0 keys at 1 nodes, 1 without an answer: all the same"


def test_nodes_are_found_by_their_records_in_the_store(store: MemoryStore, url: str, two: tuple[MemoryStore, str]) -> None:
    other, there = two
    records = {
        "paris/node-1": NodeRecord((), 1, api=url.removeprefix("http://"), areas=("plant-1",)),
        "rome/node-1": NodeRecord((), 1, api=there),
        "lyon/node-1": NodeRecord((), 1, areas=("plant-1",)),
    }
    for one in (store, other):
        for name, record in records.items():
            one.write(f"node:{name}", NODE_RECORDS.encode(record), originator=name)
    found = document("compare", ends_with=1)
    assert found["differences"] == []
    assert found["nodes"].keys() == records.keys()
    assert "does not say where" in found["nodes"]["lyon/node-1"]["error"]
    assert document("compare", "--area", "plant-1", ends_with=1)["nodes"].keys() == {"paris/node-1", "lyon/node-1"}
    assert document("compare", "--area", "site:paris")["nodes"].keys() == {"paris/node-1"}


# -- snoop


def snooping(*words: str, out: Any = subprocess.PIPE) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trunkline.cli.main", "kv", "snoop", *words]
    return subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True, bufsize=1)


@pytest.mark.usefixtures("url")
class TestSnoop:
    def test_lines_tell_what_there_is_and_every_change_until_ctrl_c(self, store: MemoryStore) -> None:
        store.write("app/a", b"1")
        with snooping("--prefix", "app/") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "value    app/a  v1 lyon/node-1 never ends  1\n"
            assert process.stdout.readline() == "-- that is what there is; changes follow\n"
            store.write("web/b", b"1")
            store.write("app/a", b"2", version=2)
            assert process.stdout.readline() == "value    app/a  v2 lyon/node-1 never ends  2\n"
            store.erase("fleet", ["app/a"])
            assert process.stdout.readline().startswith("erased   app/a  v3 paris/node-1 ")
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""
        eventually(lambda: store.watches() == 0, 20)

    def test_json_is_a_document_per_line_and_the_duration_ends_it(self, store: MemoryStore) -> None:
        store.write("app/a", b"1")
        events = [json.loads(line) for line in told("snoop", "--json", "--duration", "0.5").splitlines()]
        assert [(event["event"], event.get("key")) for event in events] == [("value", "app/a"), ("snapshot_done", None)]
        assert told("snoop", "--no-snapshot", "--duration", "0.5") == "-- that is what there is; changes follow\n"
        eventually(lambda: store.watches() == 0, 20)

    def test_at_a_terminal_it_is_a_table(self, store: MemoryStore) -> None:
        store.write("app/lamp", b"shining", ttl_ms=100_000)
        ours, theirs = pty.openpty()
        with snooping(out=theirs) as process:
            os.close(theirs)
            seen = b""
            while not (b"following" in seen and b"app/lamp" in seen and b"shining" in seen):
                seen += os.read(ours, 4096)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        os.close(ours)
        assert b"Traceback" not in seen


def test_a_node_that_stops_ends_it_with_an_error(store: MemoryStore) -> None:
    with served(store) as url:
        process = snooping("--url", url)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("-- that is what there is")
    with process:
        assert process.wait(30) == 2
        assert process.stderr is not None
        said = process.stderr.read()
    assert "it ended the watch: the node stops" in said
    assert "next: " in said


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"event": "expired", "key": "a", "skipped": 0}, "expired  a"),
        ({"event": "missed", "changes": 12}, "-- 12 changes were missed; what there is follows anew"),
        ({"event": "peer_synced", "peer": "lyon/node-1"}, "-- in step with lyon/node-1"),
        ({"event": "synced"}, "-- in step with all peers"),
        (
            {"event": "value", "key": "a", "skipped": 3, "version": 9, "originator": "x/1", "ttl_ms": 1500, "text": "b"},
            "value    a  v9 x/1 1.5s  b  (+3 changes)",
        ),
        (
            {"event": "ttl", "key": "a", "skipped": 0, "version": 9, "originator": "x/1", "ttl_ms": None},
            "ttl      a  v9 x/1 never ends",
        ),
    ],
)
def test_each_event_has_its_line(event: dict[str, Any], line: str) -> None:
    assert line_of(event) == line


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(None, "never ends"), (400, "0.4s"), (90_000, "90.0s"), (600_000, "10.0m"), (864_000_000, "10.0d")],
)
def test_times_to_live_in_words(milliseconds: int | None, words: str) -> None:
    assert ttl(milliseconds) == words


def test_records_of_nodes_are_shown_as_people_read_them() -> None:
    data = NODE_RECORDS.encode(NodeRecord(("h:1",), 7))
    shown = {"base64": base64.b64encode(data).decode()}
    assert preview("node:a/b", shown).startswith('{"addresses":["h:1"],"incarnation":7,')
    assert preview("app/x", shown).startswith("(base64) ")
    assert preview("site:a", {"base64": "wQ=="}) == "(base64) wQ=="
    assert preview("app/x", {"text": "y" * 100}) == "y" * 71 + "…"


def test_text_is_harmless() -> None:
    assert harmless("größe [x]") == "größe [x]"
    assert harmless("a\x1b[0m\n") == r"a\x1b[0m\n"
