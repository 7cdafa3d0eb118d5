"""Traces: a real collector gets each request's span under the caller's trace; one that is away costs nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.trace import Tracer

from memory_node import MemoryNode, client_of
from trunkline.api import export
from trunkline.api.app import create_app
from trunkline.api.tracing import SPANS, tracing
from trunkline.core.config import OtlpConfig
from trunkline.core.secret import Secret
from waiting import eventually

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


class Collector:
    def __init__(self) -> None:
        self.exports: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.url = ""

    def spans(self) -> list[Span]:
        return [s for export in self.exports for r in export.resource_spans for scope in r.scope_spans for s in scope.spans]


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if collector.status == 200:
                collector.exports.append(ExportTraceServiceRequest.FromString(body))
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        collector.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        yield collector
        server.shutdown()
        thread.join()


def attributes(span: Span) -> dict[str, str | int]:
    return {a.key: a.value.int_value if a.value.HasField("int_value") else a.value.string_value for a in span.attributes}


async def ask(tracer: Tracer, *requests: tuple[str, str, dict[str, str]], node: MemoryNode | None = None) -> None:
    async with client_of(create_app(node or MemoryNode(), tracer=tracer)) as client:
        for method, path, headers in requests:
            await client.request(method, path, headers=headers, content=b"{}" if method == "POST" else None)


async def test_the_collector_gets_the_requests_span_under_the_callers(collector: Collector) -> None:
    otlp = OtlpConfig(endpoint=collector.url, headers={"authorization": Secret("Bearer c0llect")})
    with tracing(otlp, "trunkline-node", "paris/node-1") as tracer:
        await ask(tracer, ("POST", "/v1/event", TRACEPARENT | {"X-Request-Id": "order-9"}))
    (span,) = collector.spans()
    assert (span.name, span.kind) == ("POST /v1/event", Span.SPAN_KIND_SERVER)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert attributes(span) == {
        "http.request.method": "POST",
        "http.route": "/v1/event",
        "http.response.status_code": 200,
        "trunkline.request_id": "order-9",
    }
    assert collector.headers[0]["authorization"] == "Bearer c0llect"
    named = {a.key: a.value.string_value for a in collector.exports[0].resource_spans[0].resource.attributes}
    assert (named["service.name"], named["service.instance.id"]) == ("trunkline-node", "paris/node-1")


async def test_names_of_spans_are_templates_and_errors_of_the_node_are_errors(collector: Collector) -> None:
    node = MemoryNode()
    node.fails = RuntimeError("x")
    with structlog.testing.capture_logs(), tracing(OtlpConfig(endpoint=collector.url), "n", "i") as tracer:
        await ask(tracer, ("GET", "/v1/store/a", {}), ("BREW", "/v1/x", {}), ("GET", "/v1/status", {}), node=node)
    assert [(span.name, span.status.code) for span in collector.spans()] == [
        ("GET /v1/store/{area}", Status.STATUS_CODE_UNSET),
        ("other (none)", Status.STATUS_CODE_UNSET),
        ("GET /v1/status", Status.STATUS_CODE_ERROR),
    ]


async def test_without_a_caller_each_request_has_a_trace_of_its_own_which_the_log_names(collector: Collector) -> None:
    capture = structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars])
    with capture as lines, tracing(OtlpConfig(endpoint=collector.url), "n", "i") as tracer:
        await ask(tracer, ("GET", "/v1/status", {}), ("GET", "/v1/status", {"traceparent": "nonsense"}))
    spans = collector.spans()
    assert [line["trace_id"] for line in lines] == [span.trace_id.hex() for span in spans]
    assert len({span.trace_id for span in spans}) == 2
    assert {span.parent_span_id for span in spans} == {b""}


async def test_only_the_asked_share_of_traces_is_kept(collector: Collector) -> None:
    with tracing(OtlpConfig(endpoint=collector.url, sample=0.0), "n", "i") as tracer:
        await ask(tracer, ("GET", "/v1/status", {}), ("GET", "/v1/trunk", TRACEPARENT))
    assert [span.name for span in collector.spans()] == ["GET /v1/trunk"]


async def test_without_a_collector_nothing_is_traced(node: MemoryNode) -> None:
    before = threading.active_count()
    with tracing(None, "n", "i") as tracer, structlog.testing.capture_logs() as lines:
        await ask(tracer, ("GET", "/v1/status", {}), node=node)
        assert not tracer.start_span("x").is_recording()
    assert [line["event"] for line in lines] == ["request"]
    assert threading.active_count() <= before + 1  # the thread of the view


def lost() -> float:
    return float(SPANS.labels("lost")._value.get())


@contextmanager
def quick_exports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(export, "DELAY_SECONDS", 0.02)
        patch.setattr(export, "EXPORT_SECONDS", 0.3)
        patch.setattr(export, "FLUSH_SECONDS", 0.5)
        yield


async def test_a_collector_that_is_away_is_one_warning_and_a_count(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = lost()
    with structlog.testing.capture_logs() as lines, quick_exports(monkeypatch):
        with tracing(OtlpConfig(endpoint="http://127.0.0.1:9/v1/traces"), "n", "i") as tracer:
            for n in (1, 2, 3):
                await ask(tracer, ("GET", "/v1/status", {}))
                eventually(lambda n=n: lost() >= before + n, 20)
            began = time.monotonic()
        assert time.monotonic() - began < 2
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert [line["endpoint"] for line in warnings] == ["http://127.0.0.1:9/v1/traces"]
    assert capfd.readouterr() == ("", "")


async def test_a_collector_that_never_answers_slows_nothing_and_the_end_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, quick_exports(monkeypatch):
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"
        with tracing(OtlpConfig(endpoint=url), "n", "i") as tracer:
            began = time.monotonic()
            await ask(tracer, *[("GET", "/v1/status", {})] * 50)
            assert time.monotonic() - began < 5
            began = time.monotonic()
        assert time.monotonic() - began < 2
        eventually(lambda: not any(thread.name.startswith("OtelBatch") for thread in threading.enumerate()), 20)


async def test_a_collector_that_comes_back_is_said_with_what_was_lost(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.status = 400
    otlp = OtlpConfig(endpoint=collector.url)
    with structlog.testing.capture_logs() as lines, quick_exports(monkeypatch), tracing(otlp, "n", "i") as tracer:
        await ask(tracer, ("GET", "/v1/status", {}))
        eventually(lambda: any(line["log_level"] == "warning" for line in lines), 20)
        collector.status = 200
        await ask(tracer, ("GET", "/v1/trunk", {}))
        eventually(lambda: len(collector.spans()) == 1, 20)
    told = [(line["event"], line.get("lost")) for line in lines if line["event"] != "request"]
    assert told == [
        ("the collector takes no traces; they are lost and counted", None),
        ("the collector takes traces again", 1),
    ]


async def test_spans_are_among_the_numbers(collector: Collector, node: MemoryNode) -> None:
    with tracing(OtlpConfig(endpoint=collector.url), "n", "i") as tracer:
        async with client_of(create_app(node, tracer=tracer)) as client:
            await client.get("/v1/status")
            assert 'trunkline_spans_total{outcome="ended"}' in (await client.get("/metrics")).text
