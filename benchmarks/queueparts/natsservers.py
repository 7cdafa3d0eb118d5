"""Two NATS servers with JetStream on files, joined over TLS: the second is a leaf of the first and mirrors its stream."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
from nats.js.api import DiscardPolicy, ExternalStream, StorageType, StreamConfig, StreamSource

from nodes import until
from trunkline.core.ids import NodeId
from trunkline.db.embedded import free_port
from trunkline.net.authority import issue, make_ca

SERVER = Path(sys.executable).with_name("nats-server")
STREAM, SUBJECT = "load", "load.entries"
KEPT_BYTES = 512 << 20

_COMMON = """
listen: 127.0.0.1:{port}
server_name: {name}
max_payload: 8MB
jetstream {{ store_dir: "{folder}/store", domain: {name}, max_file_store: 32GB{sync} }}
"""
_TLS = 'tls {{ ca_file: "{ca}/ca.pem", cert_file: "{folder}/tls/certificate.pem", key_file: "{folder}/tls/key.pem"{more} }}'
# The certificates name sites and no host, so the name of the host is not looked at; the links are encrypted as ours.
_HUB = "leafnodes {{ listen: 127.0.0.1:{leaf}, " + _TLS + " }}\n"
_LEAF = 'leafnodes {{ remotes: [ {{ url: "tls://127.0.0.1:{leaf}", ' + _TLS + " }} ] }}\n"


@dataclass
class Server:
    name: str
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, words: str) -> None:
        (self.folder / "nats.conf").write_text(words)
        with (self.folder / "nats.log").open("ab") as log:
            self.process = subprocess.Popen([str(SERVER), "-c", str(self.folder / "nats.conf")], stdout=log, stderr=log)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)


@dataclass
class Pair:
    source: Server
    sink: Server

    def call(self, server: Server, work: Any) -> Any:
        return asyncio.run(_with(server.url, work))

    def follow(self, arrived: Any, stop: threading.Event, pause: float) -> None:
        """Keeps `arrived` at the last entry that the mirror holds."""

        async def look(js: Any) -> None:
            while not stop.is_set():
                arrived.value = await _last(js)
                await asyncio.sleep(pause)

        self.call(self.sink, look)


async def _quietly(error: Exception) -> None:
    """Whoever calls sees it."""


async def _with(url: str, work: Any) -> Any:
    connection = await nats.connect(url, connect_timeout=5, allow_reconnect=False, error_cb=_quietly)
    try:
        return await work(connection.jetstream(timeout=10))
    finally:
        await connection.close()


async def _last(js: Any) -> int:
    return int((await js.stream_info(STREAM)).state.last_seq)


async def _make_stream(js: Any) -> None:
    await js.add_stream(StreamConfig(
        STREAM, subjects=[SUBJECT], storage=StorageType.FILE, max_bytes=KEPT_BYTES, discard=DiscardPolicy.OLD,
        allow_atomic=True,
    ))  # fmt: skip


def _make_mirror(source: str) -> Any:
    async def make(js: Any) -> None:
        origin = StreamSource(STREAM, external=ExternalStream(api=f"$JS.{source}.API"))
        await js.add_stream(StreamConfig(
            STREAM, mirror=origin, storage=StorageType.FILE, max_bytes=KEPT_BYTES, discard=DiscardPolicy.OLD
        ))  # fmt: skip

    return make


def _answers(pair: Pair, server: Server, work: Any) -> bool:
    try:
        pair.call(server, work)
    except (OSError, nats.errors.Error, TimeoutError):
        return False
    return True


@contextmanager
def running(folder: Path, sync_always: bool) -> Iterator[Pair]:
    sync = ", sync_interval: always" if sync_always else ""
    make_ca(folder / "ca", "benchmark")
    pair = Pair(*(Server(name, folder / name, free_port()) for name in ("source", "sink")))
    leaf = free_port()
    try:
        for server, joined, more in ((pair.source, _HUB, ", verify: true"), (pair.sink, _LEAF, ", insecure: true")):
            server.folder.mkdir(parents=True)
            issue(folder / "ca", server.folder / "tls", NodeId(server.name, "node-1"))
            values = {"leaf": leaf, "ca": folder / "ca", "folder": server.folder, "more": more}
            server.start(
                _COMMON.format(port=server.port, name=server.name, folder=server.folder, sync=sync) + joined.format(**values)
            )
        until(lambda: _answers(pair, pair.source, _make_stream), "NATS makes its stream")
        until(lambda: _answers(pair, pair.sink, _make_mirror(pair.source.name)), "NATS makes its mirror")
        yield pair
    finally:
        pair.sink.stop()
        pair.source.stop()
