"""Endpoints that dial each other; the numbers are the rules of `trunkline.net.dial`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest
from netfleet import Fleet, Member, eventually, exchange, linked, to
from structlog.testing import capture_logs

from trunkline.core.ids import NodeId
from trunkline.net.dial import BACKOFF_FIRST
from trunkline.net.endpoint import Target

A = NodeId("alpha", "node-1")
B = NodeId("beta", "node-1")
NOWHERE = "127.0.0.1:1"


async def test_1_a_peer_that_connected_by_itself_is_not_dialled_again(fleet: Fleet) -> None:
    one, other = await fleet.member(A), await fleet.member(B)
    other.endpoint.set_targets(to(one))
    await linked(one, other)
    wire = await fleet.wire(other)
    one.endpoint.set_targets({"b": Target((wire.address,))})
    await eventually(lambda: wire.connections == 1)
    await exchange(one, other, b"same link")
    await beyond_backoff(one, {"b": Target((wire.address,))})
    assert wire.connections == 1
    assert len(one.events.ups) == len(other.events.ups) == 1


async def beyond_backoff(member: Member, targets: dict[str, Target]) -> None:
    """Returns when another target, added now, has been dialled three times: time enough for the first ones to repeat."""
    dialled = 0

    def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dialled
        dialled += 1
        writer.transport.abort()

    server = await asyncio.start_server(count, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    member.endpoint.set_targets({**targets, "measure": Target((f"{host}:{port}",))})
    await eventually(lambda: dialled >= 3)
    member.endpoint.set_targets(targets)
    server.close()
    await server.wait_closed()


async def test_1_two_targets_of_one_peer_make_one_link(fleet: Fleet) -> None:
    one, other = await fleet.member(A), await fleet.member(B)
    target = Target((other.address,))
    one.endpoint.set_targets({"seed": target, "site:beta": target, "again": target})
    await linked(one, other)
    await beyond_backoff(one, {"seed": target, "site:beta": target, "again": target})
    assert len(one.events.ups) == len(other.events.ups) == 1
    assert not one.endpoint.violations
    assert not other.endpoint.violations


async def test_2_addresses_are_tried_in_order(fleet: Fleet) -> None:
    one, other = await fleet.member(A), await fleet.member(B)
    one.endpoint.set_targets({"b": Target((NOWHERE, "no address", other.address))})
    await linked(one, other)


@contextlib.asynccontextmanager
async def acceptor(then: Callable[[asyncio.StreamWriter], None]) -> AsyncIterator[str]:
    """An address where something listens that is no node."""
    writers: list[asyncio.StreamWriter] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        then(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()


async def test_2_an_address_that_never_answers_costs_one_handshake_timeout(fleet: Fleet) -> None:
    one, other = await fleet.member(A, handshake_timeout=0.3), await fleet.member(B)
    async with acceptor(lambda writer: None) as silent:
        one.endpoint.set_targets({"b": Target((silent, other.address))})
        await linked(one, other)
    assert not one.endpoint.violations, "an address that does not answer breaks no rule"


async def test_2_each_address_is_complained_about_once(fleet: Fleet) -> None:
    one = await fleet.member(A)
    with capture_logs() as logs:
        async with acceptor(lambda writer: writer.transport.abort()) as closing:
            targets = {"b": Target((NOWHERE, closing, "no address"))}
            one.endpoint.set_targets(targets)
            await beyond_backoff(one, targets)
    told = [entry["address"] for entry in logs if entry["event"] == "cannot connect" and entry["target"] == "b"]
    assert sorted(told) == sorted([NOWHERE, closing, "no address"])


async def test_2_attempts_are_ever_further_apart(fleet: Fleet) -> None:
    one = await fleet.member(A)
    attempts: list[float] = []

    def refuse(writer: asyncio.StreamWriter) -> None:
        attempts.append(time.monotonic())
        writer.transport.abort()

    async with acceptor(refuse) as address:
        one.endpoint.set_targets({"b": Target((address,))})
        await eventually(lambda: len(attempts) >= 6)
    gaps = [after - before for before, after in pairwise(attempts)]
    assert all(gap >= 0.95 * BACKOFF_FIRST * 2**number / 2 for number, gap in enumerate(gaps)), gaps


async def test_3_a_new_address_is_tried_at_once(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.net.dial.BACKOFF_FIRST", 600.0)
    monkeypatch.setattr("trunkline.net.dial.BACKOFF_MOST", 600.0)
    one, other = await fleet.member(A), await fleet.member(B)
    with capture_logs() as logs:
        one.endpoint.set_targets({"b": Target((NOWHERE,))})
        await eventually(lambda: logs)
    one.endpoint.set_targets({"b": Target((other.address,))})
    await linked(one, other)


async def test_3_a_changed_address_keeps_the_link_and_is_used_next(fleet: Fleet) -> None:
    one, other = await fleet.member(A), await fleet.member(B)
    first, second = await fleet.wire(other), await fleet.wire(other)
    one.endpoint.set_targets({"b": Target((first.address,))})
    await linked(one, other)
    one.endpoint.set_targets({"b": Target((second.address,))})
    await exchange(one, other, b"same link")
    assert len(one.events.ups) == 1
    one.endpoint.links()[B].close("moving")
    await eventually(lambda: len(one.events.ups) == 2)
    assert first.connections == 1
    assert second.connections >= 1


async def test_3_a_target_that_moves_to_another_node_is_followed(fleet: Fleet) -> None:
    one, leader, successor = await fleet.member(A), await fleet.member(B), await fleet.member(NodeId("beta", "node-2"))
    one.endpoint.set_targets({"site:beta": Target((leader.address,))})
    await linked(one, leader)
    one.endpoint.set_targets({"site:beta": Target((successor.address,))})
    await linked(one, successor)
    assert one.link(B) is not None


async def test_4_a_seed_that_is_this_node_is_dropped_for_good(fleet: Fleet) -> None:
    one = await fleet.member(A)
    wire = await fleet.wire(one)
    targets = {"seed": Target((wire.address,))}
    one.endpoint.set_targets(targets)
    await eventually(lambda: wire.connections == 1)
    await beyond_backoff(one, targets)
    assert wire.connections == 1
    assert not one.events.ups
    assert not one.endpoint.violations


async def test_a_removed_target_is_not_dialled_any_more_and_its_link_lives_on(fleet: Fleet) -> None:
    one, other = await fleet.member(A), await fleet.member(B)
    one.endpoint.set_targets({**to(other), "nowhere": Target((NOWHERE,))})
    await linked(one, other)
    one.endpoint.set_targets({})
    await eventually(lambda: not any(task.get_name().startswith("dial ") for task in asyncio.all_tasks()))
    await exchange(one, other, b"alive")
    other.endpoint.links()[A].close("for good")
    await eventually(lambda: not one.endpoint.links())
    await beyond_backoff(one, {})
    assert len(one.events.ups) == 1
