"""The plugins by themselves, and as Trunkline finds them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from trunkline_celsius.celsius import CelsiusConfig, compile_celsius
from trunkline_celsius.logbook import Logbook

from trunkline.routes.chain import Chain, Step
from trunkline.routes.ends import Sendable
from trunkline.routes.event import Event
from trunkline.routes.plugin import Around
from trunkline.routes.registry import Kind, registry


def test_fahrenheit_becomes_celsius_and_what_is_no_number_is_a_fault() -> None:
    chain = Chain([Step("celsius", compile_celsius(CelsiusConfig(path=".t", to_path=".c"), Around()))])
    ran = chain.run([Event({"t": 212}), Event({"t": "warm"})])
    assert [event.payload for event in ran.out] == [{"t": 212, "c": 100.0}]
    assert [fault.reason for fault in ran.faults] == ["payload.t: degrees are a number, found 'warm'"]


def test_a_logbook_keeps_every_message_and_says_when_it_cannot(tmp_path: Path) -> None:
    messages = [Sendable(str(n), Event({"n": n})) for n in range(2)]
    assert asyncio.run(Logbook(tmp_path / "book").send(messages)) == [None, None]
    assert (tmp_path / "book").read_text() == '{"n":0}\n{"n":1}\n'
    refused = asyncio.run(Logbook(tmp_path / "no" / "book").send(messages))
    assert [answer.again for answer in refused if answer] == [True, True]


def test_trunkline_finds_both() -> None:
    found = registry()
    assert found.package(Kind.FILTER, "celsius") == found.package(Kind.SENDER, "logbook") == "trunkline-celsius"
