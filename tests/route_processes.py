"""Instances of one site as real processes (`route_instance`), over one real storage and sync: asked, paused and killed."""

from __future__ import annotations

import ctypes
import itertools
import json
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import eventually

MODULE = Path(__file__).with_name("route_instance.py")
START_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Refused(Exception):
    """What an instance answered instead: the name of the error, and what it says."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


class InstanceProcess:
    def __init__(self, name: str, folder: Path, config: dict[str, Any]) -> None:
        self.name, self._ledger, self._log = name, folder / f"{name}.jsonl", folder / f"{name}.log"
        self._ledger.touch()
        self._asked: dict[int, Future[Any]] = {0: Future()}
        self._numbers = itertools.count(1)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(MODULE), json.dumps(config), str(self._ledger)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )  # fmt: skip
        self._started = self._asked[0]
        self._reader = threading.Thread(target=self._read, name=f"answers of {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            asked = self._asked.pop(said["to"])
            asked.set_exception(Refused(*said["error"])) if "error" in said else asked.set_result(said["is"])
        for asked in list(self._asked.values()):
            asked.set_exception(Refused("Ended", self.log()))

    def wait_started(self) -> None:
        self.id: str = self._started.result(START_SECONDS)

    def asking(self, do: str, **args: Any) -> Future[Any]:
        number = next(self._numbers)
        asked: Future[Any] = Future()
        self._asked[number] = asked
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"ask": number, "do": do, "with": args}).encode() + b"\n")
        self._process.stdin.flush()
        return asked

    def ask(self, do: str, **args: Any) -> Any:
        return self.asking(do, **args).result(60)

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._ledger.read_bytes().splitlines()]

    def sent(self, mark: str) -> list[Any]:
        return [entry["sent"] for entry in self.entries() if "sent" in entry and entry["mark"] == mark]

    def hooks(self, hook: str, end: str, of: str) -> int:
        """How often plugins of this mark or cluster were opened or closed, or begun or stopped to read."""
        wanted = {"hook": hook, "end": end, "of": of}
        return sum(wanted.items() <= entry.items() for entry in self.entries())

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self.stop()

    def stop(self) -> int:
        """As a node is stopped: everything is asked and answered, routes stop."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is self._process.stdout:
                self._process.wait(30)
                self._reader.join(10)
            if pipe is not None:
                pipe.close()
        return self._process.returncode

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        return self._log.read_text()[-4000:]


class RouteSite:
    """`where`: storage and sync, as the configuration names them."""

    def __init__(self, folder: Path, dsn: str, where: str) -> None:
        self.dsn, self.where, self._folder = dsn, where, folder
        self.name = f"s{uuid.uuid4().hex[:8]}"
        self.instances: dict[str, InstanceProcess] = {}

    def start(self, *names: str, **routing: Any) -> list[InstanceProcess]:
        started = [self._start(name, routing) for name in names]
        for instance in started:
            instance.wait_started()
        return started

    def _start(self, name: str, routing: dict[str, Any]) -> InstanceProcess:
        places = {"storage": self.where, "sync": self.where, "repair_seconds": 3600.0, "look_seconds": 3600.0}
        config = {"site": self.name, "node": name, "database": self.dsn, "routing": {**places, **routing}}
        instance = self.instances[name] = InstanceProcess(name, self._folder, config)
        return instance

    def leave(self, name: str) -> InstanceProcess:
        instance = self.instances.pop(name)
        instance.stop()
        return instance

    def agree(self, org: str, seconds: float = 30.0) -> dict[str, Any]:
        """Waits until all instances have of this tenant what is stored, and gives that."""

        def tables() -> list[Any]:
            return [instance.ask("table", org=org)["ids"] for instance in self.instances.values()]

        def agreed() -> bool:
            stored = self.any.ask("stored", org=org)
            return all(table == stored for table in tables())

        eventually(agreed, seconds, lambda: (self.any.ask("stored", org=org), tables(), self.logs()))
        found: dict[str, Any] = self.any.ask("stored", org=org)
        return found

    @property
    def any(self) -> InstanceProcess:
        return next(iter(self.instances.values()))

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{instance.log()}" for name, instance in self.instances.items())

    def clear(self, org: str) -> None:
        for id in self.any.ask("stored", org=org):
            self.any.ask("remove", org=org, id=id)
        self.agree(org)

    def stop(self) -> None:
        for name in list(self.instances):
            self.leave(name)


@contextmanager
def site_of(folder: Path, dsn: str, where: str, *names: str, **routing: Any) -> Iterator[RouteSite]:
    site = RouteSite(folder, dsn, where)
    try:
        site.start(*names, **routing)
        yield site
    finally:
        site.stop()


def route(of: str, receiver: str = "clock", **more: Any) -> dict[str, Any]:
    """From a receiver that counts to a ledger; `of` is the mark of both, by which a test tells them from others."""
    ticks, sends = {"cluster": of, **more.pop("ticks", {})}, {"mark": of, **more.pop("sends", {})}
    ends = {"receiver": {"plugin": receiver, "config": ticks}, "sender": {"plugin": "ledger", "config": sends}}
    return {**ends, **more}
