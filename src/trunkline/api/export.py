"""Traces over OTLP/HTTP, which must never cost a request anything.

1. A span that ends is put into a bounded queue; a thread of its own sends batches. A full queue drops the oldest.
2. A collector that does not take them is one warning in the log, and one line when it takes them again; in between the lost
   spans are counted (`trunkline_spans_total`).
3. Leaving the context sends what is left, and gives up after `FLUSH_SECONDS`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import Tracer

import trunkline
from trunkline.api.tracing import SPANS
from trunkline.core.config import OtlpConfig

FLUSH_SECONDS = 2.0
EXPORT_SECONDS = 2.0
QUEUE = 2048
BATCH = 512
DELAY_SECONDS = 1.0
log = structlog.get_logger()


@contextmanager
def exporting(otlp: OtlpConfig, service: str, instance: str) -> Iterator[Tracer]:
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)  # it repeats for ever what is said here once
    exporter = _Collector(otlp)
    provider = _provider(otlp, service, instance, exporter)
    try:
        yield provider.get_tracer("trunkline.api", trunkline.__version__)
    finally:
        closing = threading.Thread(target=provider.shutdown, name="tracing-flush", daemon=True)
        closing.start()
        closing.join(FLUSH_SECONDS)
        exporter.shutdown()


def _provider(otlp: OtlpConfig, service: str, instance: str, exporter: SpanExporter) -> TracerProvider:
    names = {"service.name": service, "service.instance.id": instance, "service.version": trunkline.__version__}
    provider = TracerProvider(ParentBasedTraceIdRatio(otlp.sample), Resource.create(names), shutdown_on_exit=False)
    provider.add_span_processor(
        _CountedQueue(exporter, max_queue_size=QUEUE, max_export_batch_size=BATCH, schedule_delay_millis=DELAY_SECONDS * 1000)
    )
    return provider


class _CountedQueue(BatchSpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        if span.context and span.context.trace_flags.sampled:
            SPANS.labels("ended").inc()
        super().on_end(span)


class _Collector(SpanExporter):
    """The far end, which may be away."""

    def __init__(self, otlp: OtlpConfig) -> None:
        headers = {name: secret.reveal() for name, secret in otlp.headers.items()}
        self._exporter = OTLPSpanExporter(endpoint=otlp.endpoint, headers=headers, timeout=EXPORT_SECONDS)
        self._endpoint = otlp.endpoint
        self._lost = 0
        self._closed = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE if self._closed.is_set() else self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self._taken(len(spans))
        else:
            self._missed(len(spans))
        return result

    def _taken(self, count: int) -> None:
        SPANS.labels("taken").inc(count)
        if self._lost:
            log.info("the collector takes traces again", endpoint=self._endpoint, lost=self._lost)
        self._lost = 0

    def _missed(self, count: int) -> None:
        SPANS.labels("lost").inc(count)
        if not self._lost:
            log.warning(
                "the collector takes no traces; they are lost and counted", endpoint=self._endpoint, next="check otlp.endpoint"
            )
        self._lost += count

    def shutdown(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._exporter.shutdown()  # type: ignore[no-untyped-call]
