"""Folders as a feed: files that appear there, each version of a file read once.

Spark's own file source keeps what it has seen in its checkpoint, which is disposable here (H28); this one keeps it in Postgres.

L1  Receivers of a tenant that read the same files in the same format share what they have seen: who joins later begins where
    the others are, and a route that only changes how many files are read at once goes on. Others read for themselves.
L2  A version of a file is its path, size and time of change. It is read when it is listed and was not read yet, and it was read
    when the batch that names it is done. So a file that is written anew is read again, with other ids.
L3  A file must appear as a whole, by renaming it; names that begin with a dot or a bar are hidden. One that is gone or changed
    before its batch is done makes the batch fail, and the next plan goes without it, or with what it is by then, once that is
    the same in two looks. What was sent of it stays sent.
L4  The order of a file is kept. Files go by their time of change, then by name: those that one task reads keep this order, and
    filters that remember meet all of a batch in it.
L5  A file that cannot be read stops nobody: it is passed, with its reason in pipeline.file_failed. What was read of it before
    is routed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import zip_longest
from typing import Any

import msgspec
import psycopg
import structlog

from trunkline.core.errors import Invalid, Retryable
from trunkline.db.away import attentive
from trunkline.pipeline.jobs.feed import Connection, Read
from trunkline.pipeline.jobs.feeds.file_formats import Row, read_rows
from trunkline.pipeline.jobs.feeds.file_seen import PlannedFile, Seen, store_failed, store_seen
from trunkline.pipeline.jobs.feeds.folders import Folder, Version, opened, versions
from trunkline.pipeline.jobs.receivers import Receiver, Receivers
from trunkline.pipeline.jobs.settings import JobSettings
from trunkline.routes.canonical import json_hash
from trunkline.routes.event import Event, Source
from trunkline.routes.keys import Tenant

FORGET_SECONDS = 3_600.0
_TASK_BYTES = 1 << 20  # below this a second task costs more than it saves
_OPENING = 1 << 16  # what opening a file costs, in bytes of reading
_EVENT_BYTES = 256  # a small one: files may be packed
_NANOS = 1_000_000_000

FilePiece = tuple[PlannedFile, ...]
Sharing = dict[str, list[Receiver]]
"""Receivers by what they share (L1)."""
Changed = tuple[PlannedFile, Version | None]
"""A file that is not what it was when it was planned, and what it is now."""

log = structlog.get_logger(__name__)


class FilesFeed:
    stuck = ""

    def __init__(self, settings: JobSettings) -> None:
        self._settings = settings
        self._seen = Seen(settings.group)
        self._folders: dict[str, Folder] = {}
        self._unread: dict[str, list[PlannedFile]] = {}
        self._restless: dict[tuple[str, str], tuple[Version, int]] = {}
        self._turn = 0
        self._forgets_at = time.monotonic()

    # -- planning

    def next(self, conn: Connection, receivers: Receivers, open_body: Any | None) -> tuple[Any | None, int]:
        sharing = _sharing(receivers)
        self._seen.follow(conn)
        self._look(sharing)
        if open_body is not None and not self._still_there(_files(open_body), receivers):
            return None, 0
        waiting = {name: self._new(name) for name in sharing}
        count = sum(map(len, waiting.values()))
        if open_body is not None:
            return open_body, max(0, count - len(open_body))
        self._forget(conn, sharing)
        most = {name: max(receiver.config.max_files for receiver in of) for name, of in sharing.items()}
        self._turn += 1
        chosen = admitted([waiting[name][: most[name]] for name in sharing], self._settings.max_bytes, self._turn)
        return (msgspec.to_builtins(chosen) if chosen else None), count - len(chosen)

    def _look(self, sharing: Sharing) -> None:
        for name in self._folders.keys() - sharing.keys():
            del self._folders[name], self._unread[name]
        for name, (receiver, *_) in sharing.items():
            if name not in self._folders:
                self._folders[name] = Folder(receiver.config.path, receiver.config.pattern)
            if self._folders[name].look():
                listed = self._folders[name].listing.items()
                self._unread[name] = [PlannedFile(name, path, version.size, version.modified) for path, version in listed]

    def _new(self, name: str) -> list[PlannedFile]:
        """In the order of L4. Those that were read before are met once per look."""
        seen, looks = self._seen.of(name), self._folders[name].looks
        unread = self._unread[name] = [file for file in self._unread[name] if seen.get(file.path) != file.version]
        return sorted((file for file in unread if self._rests(file, looks)), key=_order)

    def _rests(self, file: PlannedFile, looks: int) -> bool:
        """L3: of files that changed while they were read, only those that stopped."""
        key = file.receiver, file.path
        known, since = self._restless.get(key, (file.version, -1))
        if known != file.version:
            self._restless[key] = file.version, looks
        elif looks > since:
            self._restless.pop(key, None)
            return True
        return False

    def _still_there(self, files: Sequence[PlannedFile], receivers: Receivers) -> bool:
        found = {(file.receiver, file.path): now for file, now in _changed(files, _sharing(receivers))}
        for (name, path), now in found.items():
            log.warning("a file changed before it was read as a whole; it is planned anew", path=path, gone=now is None)
            folder = self._folders.get(name)
            if now is not None and folder is not None:
                self._restless[name, path] = (now, folder.looks)
        return not found

    def _forget(self, conn: Connection, sharing: Sharing) -> None:
        if time.monotonic() >= self._forgets_at:
            self._forgets_at = time.monotonic() + FORGET_SECONDS
            here = {name: folder.listing for name, folder in self._folders.items() if folder.here}
            self._seen.forget(conn, here, sharing.keys())
            self._restless = {at: since for at, since in self._restless.items() if at[1] in here.get(at[0], ())}

    def partition(self, source: str) -> str:
        return ""

    def rows(self, body: Any) -> int:
        return sum(file.size + _OPENING for file in _files(body)) // _EVENT_BYTES

    def pieces(self, body: Any, tasks: int) -> Sequence[FilePiece]:
        return packed(_files(body), tasks)

    # -- in a task

    def read(self, piece: FilePiece, receivers: Receivers) -> Iterator[Read]:
        sharing = _sharing(receivers)
        for file in piece:
            if file.receiver in sharing:
                yield from self._read(file, sharing[file.receiver])

    def _read(self, file: PlannedFile, receivers: Sequence[Receiver]) -> Iterator[Read]:
        _require_same([file], {file.receiver: list(receivers)})
        config = receivers[0].config
        system, _ = opened(config.path)
        count = 0
        try:
            for rows in read_rows(system, file.path, config.format):
                count += len(rows)
                for receiver in receivers:
                    yield receiver, list(_events(file, rows, receiver.tenant))
        except Invalid as error:
            self._pass(file, f"{error.why}; {count} events were read before")

    def _pass(self, file: PlannedFile, reason: str) -> None:
        """L5. A report, not a part of the batch: the same one whenever it is tried again."""
        log.error("a file cannot be read and is passed", path=file.path, reason=reason, next_step="write it anew")
        with closing(psycopg.connect(attentive(self._settings.dsn), application_name="trunkline-job-task")) as conn:
            store_failed(conn, self._settings.group, file, reason.replace("\0", ""))
            conn.commit()

    # -- in the driver

    def move(self, conn: Connection, body: Any) -> None:
        store_seen(conn, self._settings.group, _files(body))

    def check(self, body: Any, receivers: Receivers) -> None:
        _require_same(_files(body), _sharing(receivers))

    def close(self) -> None:
        self._folders, self._unread = {}, {}


def admitted(waiting: Sequence[Sequence[PlannedFile]], most_bytes: int, turn: int) -> list[PlannedFile]:
    """Of all in turns, a file each, from another one on every time; one file always goes, however large."""
    at = turn % len(waiting) if waiting else 0
    chosen: list[PlannedFile] = []
    size = 0
    for round in zip_longest(*waiting[at:], *waiting[:at]):
        for file in round:
            if file is None:
                continue
            size += file.size
            if chosen and size > most_bytes:
                return sorted(chosen, key=_order)
            chosen.append(file)
    return sorted(chosen, key=_order)


def packed(files: Sequence[PlannedFile], tasks: int) -> list[FilePiece]:
    """Runs of files, so that the order of all is that of the tasks."""
    total = sum(file.size + _OPENING for file in files)
    count = min(tasks, len(files), -(-total // _TASK_BYTES))
    packs: list[list[PlannedFile]] = []
    size = 0
    for file in files:
        if size * count >= total * len(packs):
            packs.append([])
        packs[-1].append(file)
        size += file.size + _OPENING
    return [tuple(pack) for pack in packs]


def _order(file: PlannedFile) -> tuple[int, str, str]:
    return file.modified, file.path, file.receiver


def _files(body: Any) -> list[PlannedFile]:
    return msgspec.convert(body, list[PlannedFile])


def _sharing(receivers: Receivers) -> Sharing:
    found: Sharing = {}
    for receiver in receivers.values():
        config, tenant = receiver.config, receiver.tenant
        name = json_hash([tenant.org, tenant.app, config.path, config.pattern, config.format])[:16]
        found.setdefault(f"files-{name}", []).append(receiver)
    return found


def _changed(files: Iterable[PlannedFile], sharing: Mapping[str, Sequence[Receiver]]) -> Iterator[Changed]:
    of_address: dict[str, list[PlannedFile]] = {}
    for file in files:
        if file.receiver in sharing:
            of_address.setdefault(sharing[file.receiver][0].config.path, []).append(file)
    for address, there in of_address.items():
        found = versions(opened(address)[0], [file.path for file in there])
        yield from ((file, found.get(file.path)) for file in there if found.get(file.path) != file.version)


def _require_same(files: Sequence[PlannedFile], sharing: Mapping[str, Sequence[Receiver]]) -> None:
    for file, now in _changed(files, sharing):
        why = "it is gone" if now is None else "it changed after it was planned"
        raise Retryable(f"file {file.path}", why, "it is planned anew; write files under a hidden name, then rename them")


def _events(file: PlannedFile, rows: Sequence[Row], tenant: Tenant) -> Iterator[Event]:
    """L2: the id says which version."""
    begin, at = f"{file.path}@{file.size}-{file.modified}#", file.modified / _NANOS
    name = file.path.rpartition("/")[2]
    for row in rows:
        about = {"path": file.path, "name": name, "line": row.number}
        metadata = {"files": {**about, "text": True} if row.text else about}
        yield Event(row.payload, metadata, Source(f"{begin}{row.number}", tenant, "", at))
