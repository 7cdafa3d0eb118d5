"""Traces, where the configuration asks for them. What sends them is loaded only then: it costs a start a tenth of a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import NoOpTracer, Tracer
from prometheus_client import Counter

from trunkline.core.config import OtlpConfig

# Of the process, not of one app: registered with every app's numbers. Ended, and neither taken nor lost: waiting, or dropped.
SPANS = Counter(
    "trunkline_spans", "spans of this process that ended, were taken by the collector, were lost", ("outcome",), registry=None
)


@contextmanager
def tracing(otlp: OtlpConfig | None, service: str, instance: str) -> Iterator[Tracer]:
    if otlp is None:
        yield NoOpTracer()
        return
    from trunkline.api.export import exporting

    with exporting(otlp, service, instance) as tracer:
        yield tracer
