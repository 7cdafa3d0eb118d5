"""`trunkline trunk status` against a real API: once, as it goes on, for people and for programs."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from click.testing import CliRunner

from memory_paths import MemoryPaths
from memory_store import MemoryStore, served
from trunkline.cli.main import app
from trunkline.cli.trunk import Before, size, tables
from trunkline.core.errors import TrunklineError

COMMAND = typer.main.get_command(app)


@pytest.fixture
def paths() -> MemoryPaths:
    return MemoryPaths("paris")


@pytest.fixture
def url(paths: MemoryPaths, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with served(MemoryStore(), views=paths.views()) as url:
        monkeypatch.setenv("TRUNKLINE_API_URL", url)
        yield url


def told(*words: str) -> str:
    done = CliRunner().invoke(COMMAND, ["trunk", "status", *words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def watching(*words: str, out: Any = subprocess.PIPE) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trunkline.cli.main", "trunk", "status", "--watch", "--every", "0.05s", *words]
    return subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True, bufsize=1)


@pytest.mark.usefixtures("url")
class TestOnce:
    def test_two_tables_and_who_is_too_slow(self) -> None:
        assert told() == (
            "link  received  duplicate  stray  catch-up  sent  relayed  in       out\n"
            "hub   4711      0          0      0         42    3        3.0 MiB  8.1 KiB\n"
            "rome  4710      0          1      12        42    3        3.0 MiB  8.1 KiB\n"
            "\n"
            "origin  from  lane  cursor  head  lag  received  duplicate  catch-up\n"
            "hub     hub   live  40      40    0    40        0          0\n"
            "lyon    hub   live  4711    4711  0    4711      0          0\n"
            "rome    rome  live  7       7     0    7         0          0\n"
            "\n"
            "rome is too slow for paris's records: 2.0 KiB wait for it\n"
        )

    def test_json_is_what_the_node_says(self, paths: MemoryPaths) -> None:
        assert json.loads(told("--json")) == paths.trunk()

    def test_a_link_that_has_carried_nothing_has_zeros(self, paths: MemoryPaths) -> None:
        paths.links["oslo"] = {"received_bytes": 0, "sent_bytes": 0}
        assert "oslo  0         0          0      0         0     0        0 B      0 B" in told()

    def test_a_link_that_is_down_keeps_what_was_counted_and_says_so(self, paths: MemoryPaths) -> None:
        paths.links["oslo"] = {"received": 12}
        assert "oslo (down)  12        0          0      0         0     0        0 B      0 B" in told()


def test_a_node_that_does_not_lead_carries_nothing() -> None:
    with served(MemoryStore(), views=MemoryPaths("paris", leads=False).views()) as url:
        assert told("--url", url).endswith("\nthis node does not lead paris: it carries nothing\n")


# -- rates


def test_rates_are_the_difference_over_the_time() -> None:
    seen = MemoryPaths("paris").trunk()
    before = MemoryPaths("paris").trunk()
    before["links"]["hub"] |= {
        "received": 4701,
        "sent": 40,
        "relayed": 1,
        "received_bytes": (3 << 20) - 4096,
        "sent_bytes": 8316,
    }
    before["streams"][1]["cursor"] = 4611
    found = tables(seen, Before(before, 2.0))
    assert found.link_columns[-4:] == ("recv/s", "sent/s", "in/s", "out/s")
    assert found.links[0][-4:] == ("5.0", "2.0", "2.0 KiB", "0 B")
    assert [line[-1] for line in found.origins] == ["0.0", "50.0", "0.0"]


def test_a_counter_that_began_anew_counts_from_zero_and_a_new_link_or_stream_too() -> None:
    seen = MemoryPaths("paris").trunk()
    before = MemoryPaths("paris").trunk()
    before["links"] = {"hub": {"received": 1_000_000}}
    before["streams"] = []
    found = tables(seen, Before(before, 1.0))
    assert [line[-4] for line in found.links] == ["4711.0", "4722.0"], "what came to catch up is received, too"
    assert [line[-1] for line in found.origins] == ["0.0"] * 3


def test_what_is_not_known_is_no_number() -> None:
    seen = MemoryPaths("paris").trunk()
    seen["streams"] = [{**seen["streams"][0], "cursor": None, "head": None, "lag": None}]
    assert tables(seen, None).origins[0][3:6] == ("–", "–", "–")
    assert tables(seen, Before(MemoryPaths("paris").trunk(), 1.0)).origins[0][-1] == "0.0"


@pytest.mark.parametrize(("count", "words"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB")])
def test_sizes(count: float, words: str) -> None:
    assert size(count) == words


# -- watching


@pytest.mark.usefixtures("url")
class TestWatch:
    def test_lines_have_rates_from_the_second_look_on_and_the_duration_ends_it(self) -> None:
        first, second, *_ = told("--watch", "--every", "0.05s", "--duration", "0.8s").split("link ")[1:]
        assert "recv/s" not in first
        assert second.count("recv/s") == 2

    def test_json_is_a_document_per_line_until_ctrl_c(self, paths: MemoryPaths) -> None:
        with watching("--json") as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["links"]["hub"]["received"] == 4711
            paths.links["hub"]["received"] = 4712
            while json.loads(process.stdout.readline())["links"]["hub"]["received"] != 4712:
                pass
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(30) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""

    def test_at_a_terminal_it_is_a_screen_that_fits(self) -> None:
        ours, theirs = pty.openpty()
        with watching(out=theirs) as process:
            os.close(theirs)
            seen = b""
            while not all(word in seen for word in (b"Ctrl-C ends", b"hub", b"origins", b"rome is too slow", b"recv/s")):
                seen += os.read(ours, 4096)
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # the terminal's other side is gone
                while True:
                    seen += os.read(ours, 4096)
            assert process.wait(30) == 0
        os.close(ours)
        assert b"Traceback" not in seen
        assert "…".encode() not in seen, "no cell is cut"


def test_a_node_that_stops_ends_the_watch_with_an_error(paths: MemoryPaths) -> None:
    with served(MemoryStore(), views=paths.views()) as url:
        process = watching("--url", url, "--json")
        assert process.stdout is not None
        process.stdout.readline()
    with process:
        process.stdout.read()
        assert process.wait(30) == 2
        assert process.stderr is not None
        assert "next: see that the node runs" in process.stderr.read()


@pytest.mark.parametrize("words", [["--every", "x"], ["--duration", "-1"]])
def test_a_duration_that_is_none_is_a_mistake(url: str, words: list[str]) -> None:
    found = CliRunner().invoke(COMMAND, ["trunk", "status", "--watch", *words]).exception
    assert isinstance(found, TrunklineError)
    assert found.next_step == "write it as 90s, 2m or 1h"
