"""Wires between real nodes that a test can close or silence: every node is reached through a proxy that knows who dials.

The proxy passes TLS through untouched. Who a connection comes from is found by its local port: the kernel says which process
holds it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

Pair = frozenset[str]


def process_of_port(port: int, pids: list[int]) -> int | None:
    """The one of these processes with a TCP socket on that local port."""
    inodes = {
        fields[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if (fields := line.split())[1].endswith(f":{port:04X}")
    }
    for pid in pids:
        with suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if str(descriptor.readlink()).removeprefix("socket:[").rstrip("]") in inodes:
                        return pid
    return None


@dataclass
class Wires:
    """`pids` says which process is which site, at this moment."""

    pids: Callable[[], dict[str, int]]
    closed: set[Pair] = field(default_factory=set)
    received: dict[tuple[str, str], int] = field(default_factory=dict)
    """(from, to) → bytes that came through."""
    _open: dict[Pair, list[asyncio.StreamWriter]] = field(default_factory=dict)
    _every: set[asyncio.StreamWriter] = field(default_factory=set)
    _flows: dict[Pair, asyncio.Event] = field(default_factory=dict)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)
            self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        await asyncio.sleep(0)  # who was accepted already has its task now
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writers = list(self._every)
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    def lead_to(self, site: str, target: str) -> str:
        """A new address that leads to the site's own."""

        async def listen() -> str:
            server = await asyncio.start_server(lambda r, w: self._pass(site, target, r, w), "127.0.0.1", 0)
            self._servers.append(server)
            return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)

    @contextmanager
    def cut(self, a: str, b: str) -> Iterator[None]:
        """Connections close, and new ones do."""
        pair = frozenset((a, b))
        self.closed.add(pair)
        self._loop.call_soon_threadsafe(lambda: [writer.close() for writer in self._open.get(pair, ())])
        try:
            yield
        finally:
            self.closed.discard(pair)

    @contextmanager
    def mute(self, a: str, b: str) -> Iterator[None]:
        """Connections stay open and bring nothing; what was sent meanwhile comes afterwards."""
        flow = self._flow(frozenset((a, b)))
        self._loop.call_soon_threadsafe(flow.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(flow.set)

    def _flow(self, pair: Pair) -> asyncio.Event:
        if pair not in self._flows:
            self._flows[pair] = asyncio.Event()
            self._flows[pair].set()
        return self._flows[pair]

    async def _pass(self, site: str, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._every.add(writer)
        sites = {pid: name for name, pid in self.pids().items()}
        port = writer.get_extra_info("peername")[1]
        dialler = sites.get(await asyncio.to_thread(process_of_port, port, list(sites)) or 0, "?")
        pair = frozenset((site, dialler))
        if pair in self.closed:
            writer.close()
            return
        host, _, port_text = target.rpartition(":")
        try:
            back, forth = await asyncio.open_connection(host, int(port_text))
        except OSError:
            writer.close()
            return
        self._every.add(forth)
        self._open.setdefault(pair, []).extend((writer, forth))
        await asyncio.gather(self._pump(pair, (dialler, site), reader, forth), self._pump(pair, (site, dialler), back, writer))

    async def _pump(self, pair: Pair, way: tuple[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flow(pair).wait()
                self.received[way] = self.received.get(way, 0) + len(data)
                writer.write(data)
                await writer.drain()
        writer.close()
