"""The embedded Postgres as one of the services: it keeps its port, and tells whether it lives."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg

from trunkline.cli.dev.debian import Say, quiet
from trunkline.cli.dev.ports import lasting_port
from trunkline.db.embedded import EmbeddedPostgres


class PostgresServer(EmbeddedPostgres):
    def __init__(self, folder: Path, _: Say = quiet) -> None:
        self._ports_file = folder / "ports.json"
        kept = json.loads(self._ports_file.read_text()) if self._ports_file.exists() else [lasting_port()]
        super().__init__(folder, port=int(kept[0]))

    @property
    def address(self) -> str:
        return self.dsn

    def start(self, template: EmbeddedPostgres | None = None) -> str:
        dsn = super().start(template)
        self._ports_file.write_text(json.dumps([self.port]))
        return dsn

    def answers(self) -> bool:
        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True
