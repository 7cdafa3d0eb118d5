"""A files feed without Spark: planned, read and moved on by hand, on a folder and a real database."""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from trunkline.core.jsoncodec import dumps
from trunkline.db.lease import Grant
from trunkline.pipeline.jobs.feeds.files import FilesFeed
from trunkline.pipeline.jobs.receivers import Receiver
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.routes.event import Event
from trunkline.routes.groups import Group
from trunkline.routes.keys import HOUSE, Tenant
from trunkline.routes.receivers.files import FilesReceiverConfig
from waiting import eventually

GROUP = Group("files", "")


def write(folder: Path, name: str, *payloads: Any) -> Path:
    """JSON lines, or what is given as bytes; it appears as a whole."""
    lines = [payload if isinstance(payload, bytes) else dumps(payload) + b"\n" for payload in payloads]
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_bytes(b"".join(lines))
    return (folder / f".{name}").rename(folder / name)


def write_parquet(folder: Path, name: str, rows: list[dict[str, Any]], row_group: int = 1000) -> Path:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / f".{name}", row_group_size=row_group)
    return (folder / f".{name}").rename(folder / name)


class Feeding:
    def __init__(self, dsn: str, **limits: Any) -> None:
        grant = Grant("files", uuid.UUID(int=1), 1)
        self.settings = JobSettings(dsn, "hub", "i1", GROUP, grant, 2, **limits)
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.receivers: dict[str, Receiver] = {}
        self.again()

    def again(self) -> None:
        """In a new process, as far as the feed knows."""
        self.feed = FilesFeed(self.settings)

    def receive(self, folder: Path, name: str = "", tenant: Tenant = HOUSE, **config: Any) -> str:
        name = name or f"r{len(self.receivers)}"
        self.receivers[name] = Receiver(name, tenant, FilesReceiverConfig(path=str(folder), **config))
        return name

    def next(self, open_body: Any = None) -> Any:
        return self.feed.next(self.conn, self.receivers, open_body)[0]

    def planned(self) -> Any:
        """The next plan that there is."""
        found: list[Any] = []
        eventually(lambda: found.append(self.next()) or found[-1])
        return found[-1]

    def names(self, body: Any) -> list[str]:
        return [Path(file["path"]).name for file in body]

    def read(self, body: Any, receiver: str = "") -> list[Event]:
        """What tasks read, in their order."""
        read = [one for piece in self.feed.pieces(body, 2) for one in self.feed.read(piece, self.receivers)]
        return [event for by, events in read for event in events if not receiver or by.name == receiver]

    def move(self, body: Any) -> None:
        with self.conn.transaction():
            self.feed.check(body, self.receivers)
            self.feed.move(self.conn, body)

    def taken(self) -> list[Event]:
        """One batch, from its plan to its end."""
        body = self.planned()
        events = self.read(body)
        self.move(body)
        return events

    def nothing_more(self) -> bool:
        """Also when every folder was looked at again."""
        looks = {name: folder.looks for name, folder in self.feed._folders.items()}
        bodies: list[Any] = []

        def all_looked() -> bool:
            bodies.append(self.next())
            return all(folder.looks > looks.get(name, 0) for name, folder in self.feed._folders.items())

        eventually(all_looked)
        return not any(bodies)

    def failed(self) -> list[tuple[str, str]]:
        return [(Path(path).name, reason) for path, reason in self.rows("SELECT path, reason FROM pipeline.file_failed")]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.conn.execute(query.encode()).fetchall()

    def close(self) -> None:
        with closing(self.conn):
            self.feed.close()
