"""The demo's application: what it wrote in its last moment is told as well."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import psycopg

from trunkline.cli.demo.application import Application
from waiting import eventually

ALARM = "INSERT INTO app.event (id, kind, subject, severity, at) VALUES ('last', 'alarm', 'cluster-01', 'high', now())"


class LastMoment(Application):
    """Is told to stop in the middle of its first change, and ends that change when its poster has looked twice since."""

    looks = 0

    def _change_status(self, conn: psycopg.Connection[Any]) -> None:
        before = self.looks
        self.stop.set()
        eventually(lambda: self.looks >= before + 2)
        conn.execute(ALARM)

    def _post_waiting(self, conn: psycopg.Connection[Any], http: httpx.Client) -> int:
        try:
            return super()._post_waiting(conn, http)
        finally:
            self.looks += 1


@contextmanager
def api(taken: list[Any]) -> Iterator[str]:
    class Takes(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Takes) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


def test_an_alarm_of_the_last_change_is_posted_before_the_application_ends(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    dsn, node_file, taken = make_database("queues"), tmp_path / "node.json", []
    with api(taken) as address:
        node_file.write_text(json.dumps({"api": address}))
        LastMoment("leaf", "hub", dsn, node_file, (), pace=0.01).run()
    assert [alarm["id"] for alarm in taken] == ["last"]
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT id, posted FROM app.event").fetchall() == [("last", True)]
