"""Whatever is sent, nothing unforeseen happens: never a 500, every refusal a problem document, every byte stream an end."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

import httpx
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.types import Message

from memory_node import MemoryNode, is_problem, running, token
from trunkline.api.app import create_app
from trunkline.api.problem import KINDS
from trunkline.core.clock import ManualClock
from trunkline.core.config import ApiConfig, Role

PATHS = st.one_of(
    st.sampled_from(["/v1/event", "/v1/status", "/v1/store/fleet", "/readyz", "/livez", "/metrics", "/docs", "/openapi.json"]),
    st.text(max_size=40).map(lambda text: "/" + text),
    st.text(max_size=20).map(lambda text: "/v1/store/" + text),
    st.sampled_from(["keys", "refresh", "clear", "hashes", "own", "summary", "signature", "peers", "watch"]).map(
        lambda view: f"/v1/store/fleet/{view}"
    ),
    st.text(max_size=300).map(lambda key: "/v1/store/fleet/keys/" + key),
    st.text(max_size=20).map(lambda site: "/v1/topology/why/" + site),
    st.text(max_size=20).map(lambda name: f"/v1/queues/{name}/entries"),
    st.sampled_from(["/v1/queues", "/v1/queues/status", "/v1/queues/sync", "/v1/queues/LRQ_Recv_orders_paris/entries"]),
    st.text(max_size=20).map(lambda name: f"/v1/bridge/sites/{name}"),
    st.text(max_size=20).map(lambda name: f"/v1/bridge/quarantine/{name}"),
    st.sampled_from(["status", "types", "offsets", "sites/paris", "quarantine", "quarantine/7", "resync"]).map(
        lambda what: f"/v1/bridge/{what}"
    ),
    st.tuples(st.text(max_size=9), st.text(max_size=9)).map(lambda peer: "/v1/store/fleet/peers/" + "/".join(peer)),
)
QUERIES = st.one_of(
    st.binary(max_size=30),
    st.lists(
        st.tuples(
            st.sampled_from(
                ["prefix", "key", "originator", "match", "values", "limit", "after", "ttl", "snapshot", "area", "bytes"]
            ),
            st.one_of(st.text(max_size=8), st.sampled_from(["any", "all", "1", "true", "fleet", "(", "a{1,99999}", "[z-a]"])),
        ),
        max_size=4,
    ).map(lambda pairs: urlencode(pairs).encode()),
)
NAMES = st.sampled_from(
    [b"host", b"origin", b"authorization", b"content-type", b"content-length", b"x-request-id", b"traceparent", b"tracestate",
     b"accept", b"x-trunkline-tenant", b"transfer-encoding", b"cookie", b"baggage", b"x-forwarded-for"]
)  # fmt: skip
VALUES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"localhost", b"Bearer tl_app", b"bearer  tl_app", b"application/json", b"text/plain;version=1.0.0",
                     b"application/openmetrics-text; version=2", b"99999999999999999999", b"-1",
                     b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"]),
)  # fmt: skip
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
BODIES = st.one_of(
    st.binary(max_size=300),
    st.recursive(st.none() | st.floats() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)).map(
        lambda value: repr(value).replace("'", '"').encode(errors="replace")
    ),
    st.integers(0, 3000).map(lambda depth: b"[" * depth),
    st.fixed_dictionaries(
        {},
        optional={
            "text": st.text(max_size=5) | st.just("\ud800"),
            "base64": st.sampled_from(["aGk=", "?", "aGk", ""]),
            "ttl_ms": st.sampled_from([None, 0, -1, 1, 10**30, 1.5, True, "1"]),
            "version": st.sampled_from([None, 0, 1, 2**64 - 1, 2**64]),
            "keep": st.sampled_from(["no", "set", "persist", "x", None]),
            "keys": st.lists(st.text(max_size=3), max_size=2),
            "site": st.text(max_size=5) | st.just("\ud800"),
            "all": st.booleans() | st.just(1),
            "addresses": st.lists(st.sampled_from(["h:1", "h:0", ":", "[::1]:7400", "\x00:1"]), max_size=2),
            "values": st.dictionaries(
                st.text(max_size=300) | st.just("\ud800"), st.just({"text": "x"}) | st.just({"text": "\ud800"}), max_size=2
            ),
        },
    ).map(lambda body: json.dumps(body).encode()),
    st.dictionaries(st.text(max_size=4), st.sampled_from([None, 1, 0, "x"]), max_size=2).map(
        lambda body: json.dumps(body).encode()
    ),
)
CLOCK = ManualClock()  # turned on for each request, so that no rate is in the way
TOKENS = (token("app", Role.WRITE, "acme"), token("ops", Role.ADMIN))
APPS = {
    "guarded": create_app(MemoryNode(), ApiConfig(tokens=TOKENS, max_body_bytes=2048), clock=CLOCK),
    "local": create_app(MemoryNode(), ApiConfig(max_body_bytes=2048), clock=CLOCK),
}
STATUSES = {kind.status for kind in KINDS} - {429, 500, 503} | {200}


async def asked(
    app: Any, method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> httpx.Response:
    """Speaks ASGI itself: an HTTP client would refuse to send most of this."""
    sent: list[Message] = []
    pieces = [body[:7], body[7:]]

    async def receive() -> Message:
        if not pieces:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http", "path": path,
        "raw_path": b"", "query_string": query, "root_path": "", "headers": headers, "client": ("127.0.0.1", 1), "server": None,
    }  # fmt: skip
    await app(scope, receive, send)
    answer = b"".join(message.get("body", b"") for message in sent)
    return httpx.Response(sent[0]["status"], headers=sent[0]["headers"], content=answer)


@settings(max_examples=300, deadline=None)
@given(
    app=st.sampled_from(sorted(APPS)),
    host=st.booleans(),
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW", "get"]),
    path=PATHS,
    query=QUERIES,
    headers=HEADERS,
    body=BODIES,
)
@example(app="local", host=True, method="POST", path="/v1/event", query=b"", headers=[], body=b"[" * 2000)
@example(app="local", host=True, method="GET", path="/v1/store/%00", query=b"prefix=%ff&prefix=2", headers=[], body=b"")
@example(app="local", host=True, method="GET", path="/v1/store/fleet/watch", query=b"", headers=[], body=b"")
@example(
    app="local", host=True, method="PUT", path="/v1/store/fleet/keys/a\n", query=b"", headers=[], body=b'{"text":"\\ud800"}'
)
@example(
    app="local",
    host=True,
    method="POST",
    path="/v1/store/fleet/keys",
    query=b"",
    headers=[],
    body=b'{"values":{"\\ud800":{"text":3}}}',
)
def test_no_request_finds_a_defect(
    app: str, host: bool, method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    given_headers = [(b"host", b"localhost"), *headers] if host else headers
    CLOCK.advance(60)
    answer = asyncio.run(asked(APPS[app], method, path, query, given_headers, body))
    assert answer.status_code in STATUSES
    if answer.status_code >= 400:
        assert is_problem(answer, answer.status_code, answer.json()["type"].rpartition(":")[2])


STREAMS = st.lists(
    st.one_of(
        st.binary(max_size=200),
        st.sampled_from([
            b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", b"POST /v1/event HTTP/1.1\r\n", b"Host: localhost\r\n", b"\r\n",
            b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"ffffffffffffffff\r\n", b"Expect: 100-continue\r\n",
            b"Upgrade: websocket\r\nConnection: Upgrade\r\n", b"X: " + b"y" * 20000 + b"\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ]),
    ),
    max_size=8,
)  # fmt: skip


async def test_no_stream_of_bytes_stops_the_server() -> None:
    node = MemoryNode()
    async with running(create_app(node)) as (address, _), httpx.AsyncClient(base_url=f"http://{address}") as client:
        host, _, port = address.rpartition(":")

        async def throw(stream: list[bytes]) -> None:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"".join(stream))
            writer.write_eof()
            try:
                answer = await asyncio.wait_for(reader.read(), 20)
            except ConnectionResetError:
                answer = b""
            writer.close()
            first = answer.partition(b"\r\n")[0]
            assert not answer or first.startswith(b"HTTP/1.1 ")
            assert b" 500 " not in first

        for stream in thrown_streams():
            await throw(stream)
            assert (await client.get("/livez")).status_code == 200


def thrown_streams() -> list[list[bytes]]:
    found: list[list[bytes]] = []

    @settings(max_examples=60, deadline=None, database=None)
    @given(STREAMS)
    def collect(stream: list[bytes]) -> None:
        found.append(stream)

    collect()
    return found
