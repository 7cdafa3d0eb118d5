"""`KafkaStatusReporter`: a site's status over Kafka, for sites that have no queues to send by.

F1  The incarnation is in a file that is on disk before the first bundle of the run is sent: greatest(old + 1, unix seconds)
    (H02). Generations and digests are of the run, so after a crash everything is sent anew, under versions never used before.
F2  `report` returns when the brokers have the bundle. When they do not say so it raises `Retryable`; the version is used up,
    and the next bundle of the type is sent whatever it holds. After a delta or hybrid change that may be lost all there is
    follows, as if the hub had asked for it.
F3  A source that fails costs its own type: it stays wanted and is tried again after a while, the others are answered.
F4  A bundle is not part of any transaction of the application: report after its commit. What a crash leaves unsent goes out
    with the next start.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from trunkline.bridge.askers import parse_request
from trunkline.bridge.pauses import Pauses
from trunkline.bridge.reporter import FULL_SECONDS, Changes, Composer, Known, Last, Outgoing, forgotten, next_incarnation
from trunkline.bridge.types import Types
from trunkline.bridge.wishes import to_ask
from trunkline.core.bundle import Version
from trunkline.core.clock import Clock, SystemClock
from trunkline.core.errors import Invalid, Retryable, TrunklineError
from trunkline.core.jsoncodec import dumps, loads
from trunkline.pipeline.kafka.clients import configuration
from trunkline.pipeline.kafka_records import Records

Source = Callable[[], Any]
"""Reads all there is of a type: rows, or the objects of a hybrid type."""

POLL_SECONDS = 0.5
RETRY_SECONDS = 5.0

log = structlog.get_logger(__name__)


def raise_incarnation(file: Path, unix_seconds: float) -> int:
    """The new one, durable when this returns. A file that cannot be read is no reason to stop: the time is above it."""
    try:
        old = int(loads(file.read_bytes(), str(file))["incarnation"])
    except (OSError, Invalid, KeyError, TypeError, ValueError):
        old = None
    new = next_incarnation(old, unix_seconds)
    aside = file.with_name(file.name + ".new")
    with aside.open("wb") as out:
        out.write(dumps({"incarnation": new}))
        out.flush()
        os.fsync(out.fileno())
    aside.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return new


class KafkaStatusReporter:
    """Reports as `site`, from any thread. `state` is a file of this reporter alone; `client` are settings of librdkafka."""

    def __init__(
        self,
        bootstrap: str,
        site: str,
        state: Path,
        types: Types,
        sources: Mapping[str, Source] | None = None,
        topic: str | None = None,
        client: Mapping[str, str] | None = None,
        full_seconds: float = FULL_SECONDS,
        delivery_seconds: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self._bootstrap, self._site, self._client = bootstrap, site, dict(client or {})
        self._topic = topic or f"status.{site}"
        self._clock, self._sources = clock or SystemClock(), dict(sources or {})
        self._composer = Composer(site, types, full_seconds)
        self._incarnation = raise_incarnation(state, self._clock.wall())
        self._sent: dict[str, Last] = {}
        self._wanted: set[str] = set()
        self._pauses = Pauses(self._clock)
        self._lock = threading.RLock()
        self._records = Records(bootstrap, self._client, delivery_seconds)

    @property
    def incarnation(self) -> int:
        return self._incarnation

    def report(self, type_: str, rows: Any = None) -> Version | None:
        """All rows of a complete type, or some of a delta or append type. Without `rows` the source of the type is read. None:
        nothing has changed, and nothing is sent."""
        with self._lock:
            content = self._read(type_) if rows is None else rows
            return self._send(type_, self._composer.compose(type_, content, self._known(type_), self._clock.wall()))

    def changed(
        self, type_: str, create: Iterable[Any] = (), update: Iterable[Any] = (), delete: Iterable[Any] = ()
    ) -> Version | None:
        """The same for a hybrid type."""
        return self.report(type_, Changes(tuple(create), tuple(update), tuple(delete)))

    def wanted(self, types: Iterable[str]) -> None:
        """The hub has asked for these; without any, for all."""
        with self._lock:
            self._wanted |= {name for name in self._composer.to_send(list(types) or self._sources) if name in self._sources}

    def answer(self) -> list[str]:
        """Sends all there is of what was asked for or is due; bases first. What is returned was sent."""
        with self._lock:
            now = self._clock.wall()
            self._wanted |= {name for name in self._sources if self._composer.is_due(self._known(name), now)}
            todo = [name for name in self._composer.to_send(self._wanted) if name in self._sources]
            self._wanted = set(todo)
            return [name for name in todo if not self._pauses.rests(name) and self._answered(name)]

    def _answered(self, type_: str) -> bool:
        try:
            sent = self._composer.restore(type_, self._read(type_), self._known(type_), self._clock.wall())
        except Exception as error:
            self._pauses.failed(type_, error)
            return False
        self._pauses.worked(type_)
        self._send(type_, sent)
        self._wanted.discard(type_)
        return True

    def serving(self, control: str = "status-control") -> Serving:
        return Serving(self, self._bootstrap, control, self._site, self._client)

    def close(self) -> None:
        self._records.close()

    def _known(self, type_: str) -> Known:
        base = self._composer.types[type_].depends_on
        return Known(self._incarnation, self._sent.get(type_), self._sent.get(base) if base else None)

    def _send(self, type_: str, sent: Outgoing | None) -> Version | None:
        if sent is None:
            return None
        self._sent[type_] = forgotten(sent.last)
        try:
            for bundle in sent.bundles:
                self._records.send(self._topic, self._site, bundle.data, bundle.headers())
            self._records.flush()
        except Retryable:
            self._lost(type_)
            raise
        self._sent[type_] = sent.last
        return sent.version

    def _lost(self, type_: str) -> None:
        asked = to_ask(self._composer.types, type_)
        if self._composer.types[type_].mode.is_ordered and asked in self._sources:
            self._wanted.add(str(asked))

    def _read(self, type_: str) -> Any:
        source = self._sources.get(type_)
        if source is None:
            raise Invalid(f"report of {type_}", "it has no rows and no source", "give it rows, or the reporter a source")
        return source()


class Serving:
    """Takes the hub's requests from the control topic and answers them, in a thread of its own, until the block ends. Requests
    from before are not looked at: the hub asks again, and a start sends all there is anyway."""

    def __init__(
        self, reporter: KafkaStatusReporter, bootstrap: str, control: str, site: str, client: Mapping[str, str]
    ) -> None:
        self._reporter, self._control, self._site = reporter, control, site
        own = {"group.id": f"trunkline-reporter-{site}", "enable.auto.commit": False, "auto.offset.reset": "latest"}
        self._config = configuration(bootstrap, own, client)
        self._stop, self._ready = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-reporter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def wait_until_listening(self, seconds: float) -> bool:
        """True when every request from now on is heard."""
        return self._ready.wait(seconds)

    def _run(self) -> None:
        pause = 0.0
        while not self._stop.wait(pause):
            try:
                with closing(Consumer(self._config)) as consumer:
                    self._listen(consumer)
            except Exception as error:
                pause = RETRY_SECONDS
                defect = None if isinstance(error, (KafkaException, TrunklineError)) else error
                log.warning("report waits", error=str(error), retry_seconds=pause, exc_info=defect)

    def _listen(self, consumer: Consumer) -> None:
        consumer.assign(self._ends(consumer))
        self._ready.set()
        while not self._stop.is_set():
            self._reporter.answer()
            record = consumer.poll(POLL_SECONDS)
            if record is None:
                continue
            failure = record.error()
            if failure is not None:
                raise KafkaException(failure)
            if record.key() == self._site.encode():
                self._take(dict(record.headers() or []), record.value() or b"")

    def _ends(self, consumer: Consumer) -> list[TopicPartition]:
        found = consumer.list_topics(self._control, timeout=10).topics.get(self._control)
        if found is None or not found.partitions:
            raise Retryable(f"topic {self._control}", "it is not there", "create it, or wait for the hub's first request")
        places = [TopicPartition(self._control, number) for number in found.partitions]
        for place in places:
            place.offset = consumer.get_watermark_offsets(place, timeout=10)[1]
        return places

    def _take(self, headers: Mapping[str, Any], payload: bytes) -> None:
        texts = {name: value.decode() if isinstance(value, bytes) else str(value) for name, value in headers.items()}
        try:
            request = parse_request(texts, payload)
        except Invalid as error:
            log.warning("request not understood", error=str(error))
            return
        if request is not None:
            self._reporter.wanted(request.types)
