"""The demo's application at one site: changes its own status rows, and reports them.

A site's application changes its rows and transmits the bundle in the same transaction, so the queue never tells of anything
that did not happen. So does each of its readings, which are numbered: a route of the hub takes them in. Alarms go the other
way in: they are posted to the node's API until it answers 200, which means durable. The hub's application sends policies to
the sites behind the relay: one entry for all of them.
"""

from __future__ import annotations

import json
import signal
import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import httpx
import psycopg
import structlog

from trunkline.cli.demo.live import READINGS
from trunkline.core.bundle import Bundle, Dependency, Mode, Version
from trunkline.core.errors import Invalid
from trunkline.core.jsoncodec import dumps
from trunkline.queues.client import QueueClient

SCHEMA = """
CREATE SCHEMA IF NOT EXISTS app;
CREATE TABLE IF NOT EXISTS app.cluster (name text PRIMARY KEY, health text NOT NULL, revision bigint NOT NULL,
    changed_at timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS app.compliance (cluster text, policy text, state text NOT NULL, changed_at timestamptz NOT NULL,
    PRIMARY KEY (cluster, policy));
CREATE TABLE IF NOT EXISTS app.event (id text PRIMARY KEY, kind text NOT NULL, subject text NOT NULL, severity text NOT NULL,
    at timestamptz NOT NULL, posted boolean NOT NULL DEFAULT false);
CREATE TABLE IF NOT EXISTS app.reading (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, celsius int NOT NULL);
CREATE TABLE IF NOT EXISTS app.policy (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL);
CREATE TABLE IF NOT EXISTS app.reporter (one boolean PRIMARY KEY DEFAULT true CHECK (one), incarnation bigint NOT NULL,
    generation bigint NOT NULL);
"""
BEGIN_INCARNATION = """
INSERT INTO app.reporter AS r (incarnation, generation) VALUES (extract(epoch FROM clock_timestamp())::bigint, 0)
ON CONFLICT (one) DO UPDATE SET incarnation = greatest(r.incarnation + 1, excluded.incarnation), generation = 0
"""
NEXT_GENERATION = "UPDATE app.reporter SET generation = generation + 1 RETURNING incarnation, generation"
ROWS = {
    "clusters": "SELECT name, health, revision, changed_at FROM app.cluster ORDER BY name",
    "compliance": "SELECT cluster, policy, state, changed_at FROM app.compliance ORDER BY cluster, policy",
}
POLICIES = ("firewall", "backup", "updates")


class Application:
    def __init__(self, site: str, hub: str, dsn: str, node_file: Path, policy_sites: tuple[str, ...], pace: float) -> None:
        self.site, self.hub, self.dsn, self.node_file = site, hub, dsn, node_file
        self.policy_sites, self.pace = policy_sites, pace
        self.random = Random()
        self.stop, self.last_written = threading.Event(), threading.Event()
        self.status, self.policy, self.readings = QueueClient("status"), QueueClient("policy"), QueueClient(READINGS)
        self.log = structlog.get_logger().bind(site=site)

    def run(self) -> None:
        with psycopg.connect(self.dsn) as conn:
            conn.execute(SCHEMA)
            conn.execute(BEGIN_INCARNATION)
        poster = threading.Thread(target=self._post_alarms, name="alarms")
        if self.site != self.hub:
            poster.start()
        try:
            self._work()
        finally:
            self.last_written.set()
            if poster.ident is not None:
                poster.join()

    def _work(self) -> None:
        step = self._send_policy if self.site == self.hub else self._change_status
        while not self.stop.is_set():
            try:
                with psycopg.connect(self.dsn) as conn:
                    while not self.stop.wait(self.pace * self.random.uniform(0.5, 1.5)):
                        step(conn)
                        conn.commit()
            except (Invalid, psycopg.Error) as error:
                # Until the node has met the hub, the hub is not a known destination: the whole transaction is undone.
                self.log.info("rolled back; trying again", reason=str(error))
                self.stop.wait(0.5)

    # -- status, in the application's own transaction

    def _change_status(self, conn: psycopg.Connection[Any]) -> None:
        names = {f"cluster-{self.random.randint(1, 20):02}" for _ in range(self.random.randint(1, 4))}
        removed = [name for name in sorted(names) if self._change_cluster(conn, name)]
        version = self._report(conn, "clusters", None)
        if removed or self.random.random() < 0.5:
            for policy in POLICIES:
                self._judge(conn, policy)
            self._report(conn, "compliance", Dependency("clusters", version))
        self._read(conn)
        if self.random.random() < 0.3:
            alarm = (str(uuid.uuid4()), f"cluster-{self.random.randint(1, 20):02}", self.random.choice(("low", "high")))
            conn.execute("INSERT INTO app.event (id, kind, subject, severity, at) VALUES (%s, 'alarm', %s, %s, now())", alarm)

    def _change_cluster(self, conn: psycopg.Connection[Any], name: str) -> bool:
        """True when the cluster was removed, and its compliance with it."""
        if self.random.random() < 0.05:
            conn.execute("DELETE FROM app.compliance WHERE cluster = %s", (name,))
            conn.execute("DELETE FROM app.cluster WHERE name = %s", (name,))
            return True
        health = self.random.choice(("green", "amber", "red"))
        conn.execute(
            "INSERT INTO app.cluster AS c VALUES (%s, %s, 1, clock_timestamp()) ON CONFLICT (name) DO UPDATE "
            "SET health = excluded.health, revision = c.revision + 1, changed_at = excluded.changed_at",
            (name, health),
        )
        return False

    def _judge(self, conn: psycopg.Connection[Any], policy: str) -> None:
        state = self.random.choice(("compliant", "violated"))
        conn.execute(
            "INSERT INTO app.compliance SELECT name, %s, %s, clock_timestamp() FROM app.cluster ORDER BY random() LIMIT 5 "
            "ON CONFLICT (cluster, policy) DO UPDATE SET state = excluded.state, changed_at = excluded.changed_at",
            (policy, state),
        )

    def _read(self, conn: psycopg.Connection[Any]) -> None:
        celsius = self.random.randint(-20, 40)
        row = conn.execute("INSERT INTO app.reading (celsius) VALUES (%s) RETURNING number", (celsius,)).fetchone()
        assert row is not None
        reading = {"kind": READINGS, "site": self.site, "number": row[0], "celsius": celsius}
        self.readings.transmit(conn, dumps(reading), [self.hub])

    def _report(self, conn: psycopg.Connection[Any], kind: str, dependency: Dependency | None) -> Version:
        row = conn.execute(NEXT_GENERATION).fetchone()
        assert row is not None
        version = Version(*row)
        cursor = conn.execute(ROWS[kind].encode())
        names = [c.name for c in cursor.description or ()]
        bundle = Bundle(
            id=f"{self.site}.{kind}.{version}",
            source=self.site,
            type=kind,
            time=datetime.now(UTC).isoformat(),
            mode=Mode.COMPLETE,
            version=version,
            dependency=dependency,
            data=dumps([dict(zip(names, r, strict=True)) for r in cursor]),
        )
        self.status.transmit(conn, bundle.data, [self.hub], bundle.headers())
        return version

    def _send_policy(self, conn: psycopg.Connection[Any]) -> None:
        body = self.random.choice(POLICIES)
        row = conn.execute("INSERT INTO app.policy (body) VALUES (%s) RETURNING number", (body,)).fetchone()
        assert row is not None
        self.policy.transmit(conn, dumps({"number": row[0], "policy": body}), list(self.policy_sites))

    # -- alarms, over the node's API

    def _post_alarms(self) -> None:
        """Ends when the last alarm is written and nothing is left to post."""
        done = False
        with httpx.Client(timeout=5, trust_env=False) as http:
            while not done:
                try:
                    with psycopg.connect(self.dsn, autocommit=True) as conn:
                        while not done:
                            no_more = self.last_written.wait(0.2)
                            done = self._post_waiting(conn, http) == 0 and no_more
                except (psycopg.Error, httpx.HTTPError, OSError, json.JSONDecodeError) as error:
                    self.log.info("alarm not taken; trying again", reason=str(error))
                    time.sleep(0.2)

    def _post_waiting(self, conn: psycopg.Connection[Any], http: httpx.Client) -> int:
        rows = conn.execute("SELECT id, kind, subject, severity, at FROM app.event WHERE NOT posted ORDER BY at").fetchall()
        if rows:
            url = f"http://{json.loads(self.node_file.read_text())['api']}/v1/event"
        for alarm, kind, subject, severity, at in rows:
            event = {"id": alarm, "kind": kind, "subject": subject, "severity": severity, "at": at.isoformat()}
            http.post(url, json=event).raise_for_status()
            conn.execute("UPDATE app.event SET posted = true WHERE id = %s", (alarm,))
        return len(rows)


def run_application(site: str, hub: str, dsn: str, node_file: Path, policy_sites: tuple[str, ...], pace: float) -> None:
    application = Application(site, hub, dsn, node_file, policy_sites, pace)
    signal.signal(signal.SIGTERM, lambda *_: application.stop.set())
    application.run()
