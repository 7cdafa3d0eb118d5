"""`trunkline pipeline run` as a process of its own, at a site without a bridge; and numbered records for its routes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import yaml
from hand_job import received

from kafka_topics import Topics
from route_node import RouteNode
from trunkline.core.jsoncodec import dumps, loads
from trunkline.routes.keys import HOUSE, RouteKey

PARTITIONS = 2
TABLES = """
CREATE TABLE public.once (place bigserial, p int, n int);
CREATE TABLE public.joined (place bigserial, members jsonb);
INSERT INTO queues.site (name) VALUES ('shop')
"""
_QUEUED = """
SELECT convert_from(m.payload, 'UTF8')::jsonb FROM queues.sent_message m JOIN queues.ticket t USING (xid)
 WHERE m.client = 'flow' ORDER BY t.ticket, m.id, m.nth
"""
_JOINED = "SELECT one FROM public.joined, jsonb_array_elements(members) WITH ORDINALITY AS m (one, nth) ORDER BY place, nth"
_BEGINS, _ENDS = "this instance runs a receiver group", "this instance no longer runs a receiver group"


class PipelineProcess:
    """May be started again and again; `close` when done."""

    def __init__(self, folder: Path, dsn: str, **spark: Any) -> None:
        self.folder, self.runtime = folder, folder / "run"
        folder.mkdir()
        config = {"site": "hub", "node": folder.name, "database": dsn, "runtime": str(self.runtime), "spark": spark}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        self._log = (folder / "log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        words = ["pipeline", "run", "--fast-start", "--config", str(self.folder / "config.yaml"), *options]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trunkline.cli.main", *words],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=self.folder,
        )  # fmt: skip

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def runs_its_group(self) -> bool:
        """By its own words."""
        said = [json.loads(line)["event"] for line in self.log().splitlines() if line.startswith("{")]
        return said.count(_BEGINS) > said.count(_ENDS)

    def is_ready(self) -> bool:
        """Not one that was killed before it."""
        assert self.process.poll() is None, self.log()
        file = self.runtime / "pipeline.ready"
        return file.exists() and json.loads(file.read_text())["pid"] == self.process.pid

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)

    def close(self) -> None:
        self.kill()
        self._log.close()


class Flow:
    """Numbered records of a topic with two partitions, through four routes: effectively once into a table, into a queue and,
    several joined to one, into another table; and at least once into a topic of as many partitions."""

    def __init__(self, dsn: str, topics: Topics) -> None:
        self.dsn, self.topics, self.sent = dsn, topics, 0
        topics.create("in", "out", partitions=PARTITIONS)
        with psycopg.connect(dsn) as conn:
            conn.execute(TABLES)
        columns = {"p": "{payload.p}", "n": "{payload.n}"}
        out = {"brokers": topics.bootstrap, "topic": topics.name("out"), "partitionPath": "payload.p"}
        with RouteNode(dsn) as node:
            table = {"plugin": "postgres", "config": {"table": "public.once", "columns": columns}}
            queue = {"plugin": "queue", "config": {"client": "flow", "destinations": ["shop"]}}
            joined = {"plugin": "postgres", "config": {"table": "public.joined", "columns": {"members": "{payload}"}}}
            batch = {"plugin": "batch", "config": {"batchSize": 7, "timeoutMs": 200}}
            self._put(node, "once", table, deliveryMode="effectively_once")
            self._put(node, "queued", queue, deliveryMode="effectively_once")
            self._put(node, "joined", joined, filterChain=[batch], deliveryMode="effectively_once")
            self._put(node, "often", {"plugin": "kafka", "config": out})

    def _put(self, node: RouteNode, id: str, sender: dict[str, Any], **more: Any) -> None:
        manager = node.routing.operating.manager
        node.run(manager.add(HOUSE, {"receiver": received(self.topics), "sender": sender, **more}, id))
        assert not manager.status(RouteKey(HOUSE, id)).reason

    def send(self, count: int) -> None:
        """So many to each partition."""
        for p in range(PARTITIONS):
            self.topics.put("in", *(dumps({"p": p, "n": self.sent + n}) for n in range(count)), partition=p)
        self.sent += count

    def count(self, query: str) -> int:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            row = conn.execute(query.encode()).fetchone()
        return int(row[0] or 0) if row else 0

    def in_table(self) -> int:
        return self.count("SELECT count(*) FROM public.once")

    def passed(self) -> int:
        return self.count("SELECT sum(next_offset) FROM pipeline.kafka_offset")

    def planned(self) -> int:
        """Batches that are done or open."""
        return self.count("SELECT sum(moves) + (SELECT count(*) FROM pipeline.job_plan) FROM pipeline.job")

    def is_done(self) -> bool:
        there = (self.passed(), self.in_table(), self.count(f"SELECT count(*) FROM ({_QUEUED}) AS q"), self._joined())
        return set(there) == {PARTITIONS * self.sent} and not self.count("SELECT count(*) FROM routes.lane")

    def _joined(self) -> int:
        return self.count("SELECT sum(jsonb_array_length(members)) FROM public.joined")

    def require_end(self) -> None:
        """Nothing lost, order kept, nothing doubled but where it may be."""
        with psycopg.connect(self.dsn) as conn:
            once = conn.execute("SELECT p, n FROM public.once ORDER BY place").fetchall()
            queued, joined = ([(one["p"], one["n"]) for (one,) in conn.execute(query)] for query in (_QUEUED, _JOINED))
        for p in range(PARTITIONS):
            for way, rows in {"once": once, "queued": queued, "joined": joined}.items():
                assert [n for of, n in rows if of == p] == list(range(self.sent)), way
            self._require_topic(p)

    def _require_topic(self, p: int) -> None:
        ids: dict[str, int] = {}
        for record in self.topics.records("out", [p]):
            headers: Any = record.headers()
            number = loads(record.value() or b"")["n"]
            assert ids.setdefault(dict(headers)["trunkline-id"].decode(), number) == number
        assert list(ids.values()) == list(range(self.sent))
