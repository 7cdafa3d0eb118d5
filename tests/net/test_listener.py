"""Listening under pressure; the numbers are the rules of `trunkline.net.listener`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Iterator

import pytest
from netfleet import Fleet, Member, eventually, exchange, linked, to
from structlog.testing import capture_logs

from trunkline.core.ids import NodeId
from trunkline.net.listener import MAX_HANDSHAKES

A = NodeId("alpha", "node-1")
B = NodeId("beta", "node-1")


async def connect(member: Member) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = member.address.rsplit(":", 1)
    return await asyncio.open_connection(host, int(port))


async def test_1_three_hundred_that_say_nothing_do_not_keep_a_good_one_out(fleet: Fleet) -> None:
    one = await fleet.member(A, handshake_timeout=60.0)
    silent = [await connect(one) for _ in range(300)]
    other = await fleet.member(B)
    other.endpoint.set_targets(to(one))
    await linked(one, other)
    await exchange(one, other, b"among them")
    assert one.endpoint.violations["overload"] == 300 - MAX_HANDSHAKES + 1
    for _, writer in silent:
        writer.transport.abort()


async def test_1_the_oldest_makes_room_and_is_told_once(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.net.listener.MAX_HANDSHAKES", 2)
    one = await fleet.member(A)
    with capture_logs() as logs:
        opened = []
        for dropped in (0, 0, 1, 2):
            opened.append(await connect(one))
            await eventually(lambda dropped=dropped: one.endpoint.violations["overload"] == dropped)
        for reader, _ in opened[:2]:
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
    assert not any(reader.at_eof() for reader, _ in opened[2:])
    assert [entry["kind"] for entry in logs if entry["log_level"] == "warning"] == ["overload"]
    for _, writer in opened:
        writer.transport.abort()


@contextlib.contextmanager
def no_free_descriptors() -> Iterator[None]:
    """This process may open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_2_without_free_descriptors_links_live_on_and_accepting_comes_back(fleet: Fleet) -> None:
    one, other = await fleet.member(A), await fleet.member(B)
    other.endpoint.set_targets(to(one))
    await linked(one, other)
    host, port = one.address.rsplit(":", 1)
    with contextlib.ExitStack() as stack, capture_logs() as logs:
        # what other threads of this process close meanwhile lets some of them in
        *_, waiting = strangers = [stack.enter_context(socket.socket()) for _ in range(10)]
        with no_free_descriptors():
            for one_of_them in strangers:
                one_of_them.setblocking(False)
                await asyncio.get_running_loop().sock_connect(one_of_them, (host, int(port)))
            await eventually(lambda: one.endpoint.accept_errors >= 2)
            await exchange(one, other, b"undisturbed")
        assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["cannot accept"]
        waiting.send(b"no TLS: so an answer shows that it was accepted")
        await eventually(lambda: one.endpoint.violations["tls"] == 1)
    third = await fleet.raw(one.address, NodeId("gamma", "node-1"))
    await third.shake_hands()
