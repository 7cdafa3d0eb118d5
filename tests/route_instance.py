"""An instance of a site as a process of its own: the routing table of a node without its links, told what to do over a pipe.

Every line on standard input is a question, every line on standard output an answer, in any order. Plugins of its own write
down what they are told and send, so that a test can count it:

    tick      a receiver that counts: {"n": 0}, {"n": 1} … It runs at one instance; `clock` is the same, and runs everywhere.
              With `breaks` it fails at the instance of that name.
    ledger    a sender that writes into a file of this instance; with `holds` only when it is closed. `fails` refuses to open.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field

from trunkline.core.clock import SystemClock
from trunkline.core.config import ProcessConfig
from trunkline.core.errors import TrunklineError
from trunkline.core.jsoncodec import dumps
from trunkline.core.logs import configure_logs
from trunkline.db.lease import Grant
from trunkline.node.routing import Routing
from trunkline.node.supervise import Supervisor
from trunkline.routes.ends import Give, Place, Sendable, Undelivered
from trunkline.routes.event import Event, Source
from trunkline.routes.fields import RouteModel
from trunkline.routes.keys import RouteKey, Tenant
from trunkline.routes.plugin import ReceiverPlugin, Runs, SenderPlugin
from trunkline.routes.registry import OURS, Registry
from trunkline.routes.storage.base import TenantConfig

LEDGER: Path


def write(**entry: Any) -> None:
    with LEDGER.open("ab") as file:
        file.write(dumps(entry) + b"\n")


class TickConfig(RouteModel):
    """Counts."""

    rounds: int = Field(default=-1, description="how far; -1: for ever")
    interval_ms: float = Field(default=10.0, description="between two numbers")
    cluster: str = Field(default="", description="which group it belongs to")
    breaks: str = Field(default="", description="the name of the instance at which it fails")


class Tick:
    def __init__(self, config: TickConfig, place: Place) -> None:
        self._config, self._name, self._n = config, place.instance.rpartition("_")[0], 0
        write(hook="opened", end="receiver", of=config.cluster)

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        write(hook="runs", end="receiver", of=self._config.cluster, epoch=grant.epoch if grant else 0)
        if self._name == self._config.breaks:
            raise ConnectionError("the clock is broken here")
        while not stop.is_set() and self._n != self._config.rounds:
            done = await give([Event({"n": self._n})], 30.0)
            if (await done)[0].outcome == "acked":
                self._n += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._config.interval_ms / 1000)
        write(hook="rests", end="receiver", of=self._config.cluster)

    async def close(self) -> None:
        write(hook="closed", end="receiver", of=self._config.cluster)


class LedgerConfig(RouteModel):
    """Writes into a file."""

    mark: str = Field(default="", description="stands beside what it writes")
    holds: bool = Field(default=False, description="whether it writes only at the end")
    fails: bool = Field(default=False, description="whether it cannot be opened")


class Ledger:
    def __init__(self, config: LedgerConfig, place: Place) -> None:
        if config.fails:
            raise ConnectionError("the ledger is away")
        self._config, self._held = config, list[Any]()
        write(hook="opened", end="sender", of=config.mark)

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        payloads = [message.message.payload for message in messages]
        if self._config.holds:
            self._held += payloads
        else:
            self._write(payloads)
        return [None] * len(messages)

    async def close(self) -> None:
        self._write(self._held)
        write(hook="closed", end="sender", of=self._config.mark)

    def _write(self, payloads: Sequence[Any]) -> None:
        for payload in payloads:
            write(sent=payload, mark=self._config.mark)


async def open_tick(config: TickConfig, place: Place) -> Tick:
    return Tick(config, place)


async def open_ledger(config: LedgerConfig, place: Place) -> Ledger:
    return Ledger(config, place)


PLUGINS = Registry(
    (
        *OURS,
        ReceiverPlugin("tick", TickConfig, Runs.LOCAL, open_tick, cluster=lambda config: config.cluster),
        ReceiverPlugin("clock", TickConfig, Runs.LOCAL, open_tick, everywhere=True),
        SenderPlugin("ledger", LedgerConfig, Runs.LOCAL, open=open_ledger),
    )
)


class Answers:
    """What can be asked; each name is a method."""

    def __init__(self, routing: Routing) -> None:
        self._routing, self._lost = routing, 0

    @property
    def _manager(self) -> Any:
        return self._routing.operating.manager

    async def add(self, org: str, body: dict[str, Any], id: str = "") -> dict[str, Any]:
        changed = await self._manager.add(Tenant(org, "app"), body, id)
        (key,) = changed.here
        stored = changed.routes[key]
        return {"id": key.id, "revision": stored.revision, "created": stored.created, "live": changed.here[key].live}

    async def write(self, org: str, body: dict[str, Any], id: str) -> None:
        """As somebody wrote it, fragments and all."""
        await self._routing.operating.routes.add(Tenant(org, "app"), body, id)

    async def write_fragment(self, org: str, body: dict[str, Any]) -> None:
        await self._routing.operating.fragments.put(Tenant(org, "app"), body)

    async def remove(self, org: str, id: str) -> None:
        await self._manager.remove(RouteKey(Tenant(org, "app"), id))

    async def toggle(self, org: str, id: str) -> None:
        await self._manager.toggle(RouteKey(Tenant(org, "app"), id))

    async def table(self, org: str) -> dict[str, Any]:
        """Of one tenant; `live`: by hash how many ids use it."""
        table = self._manager.table
        ids = {key.id: known for key, known in table.ids.items() if key.tenant.org == org}
        return {
            "ids": {id: [known.revision, known.hash] for id, known in ids.items()},
            "live": {known.hash: table.live[known.hash] for known in ids.values() if not known.rests},
            "rests": {id: known.rests for id, known in ids.items() if known.rests},
            "refused": {key.id: one.reason for key, one in table.refused.items() if key.tenant.org == org},
        }

    async def stored(self, org: str) -> dict[str, Any]:
        found = await self._routing.operating.storage.of_tenant(Tenant(org, "app"))
        return {one.key.id: [one.revision, one.hash] for one in found}

    async def receivers(self, org: str) -> int:
        return sum(1 for one in self._routing.runner.receivers() if one.key.tenant.org == org)

    async def repair(self) -> int:
        return int((await self._manager.repair()).count)

    async def deaf(self, on: bool) -> None:
        """Deltas that come now are lost."""
        self._manager._syncer._on_delta = self._lose if on else self._manager._on_delta

    async def lost(self) -> int:
        return self._lost

    async def _lose(self, delta: object) -> None:
        self._lost += 1

    async def dies_after_a_change(self) -> None:
        """Killed when the next change is committed, before anybody is told of it."""
        self._manager._publish = lambda changes: os.kill(os.getpid(), signal.SIGKILL)

    async def heard(self) -> int:
        return int(self._manager._syncer.counts.heard)

    async def check(self) -> list[Any]:
        found = self._routing.check()
        return [found.ok, found.reason]

    async def instances(self) -> int:
        return 1 + len(self._routing.operating.others())

    async def groups(self) -> list[str]:
        return sorted(group.plugin + group.cluster for group in self._routing.runner.held)

    async def quota(self, org: str, per_second: float | None) -> None:
        operating, tenant = self._routing.operating, Tenant(org, "app")
        await operating.storage.put_tenant(TenantConfig(tenant, per_second))
        await operating.tenants.look(tenant)
        self._manager.tell_tenant(tenant)

    async def known_quota(self, org: str) -> float | None:
        known = self._routing.operating.tenants.known.get(Tenant(org, "app"))
        return known.events_per_second if known is not None else None

    async def burst(self, org: str, id: str, count: int, seconds: float) -> dict[str, int]:
        """Injects so many events at once; gives how many had which outcome."""
        route = self._manager.route(RouteKey(Tenant(org, "app"), id))
        source = Source(tenant=Tenant(org, "app"))
        events = [Event({"n": n}, source=source) for n in range(count)]
        done = await asyncio.gather(*[self._routing.runner.inject(route, event, seconds) for event in events])
        return dict(Counter(f"{one.outcome} {one.reason}".strip() for one in done))


async def answer(answers: Answers, line: bytes) -> None:
    question = json.loads(line)
    call: Callable[..., Awaitable[Any]] = getattr(answers, question["do"])
    try:
        said = {"is": await call(**question["with"])}
    except TrunklineError as error:
        said = {"error": [type(error).__name__, f"{error.what}: {error.why}"]}
    except Exception as error:
        said = {"error": [type(error).__name__, str(error)]}
    sys.stdout.buffer.write(dumps({"to": question["ask"], **said}) + b"\n")
    sys.stdout.buffer.flush()


async def main(config: ProcessConfig) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with Supervisor(SystemClock(), random.random) as supervisor:
        routing = Routing(config, supervisor, SystemClock(), random.random, PLUGINS)
        await routing.start()
        answers = Answers(routing)
        sys.stdout.buffer.write(dumps({"to": 0, "is": routing.instance.id}) + b"\n")
        sys.stdout.buffer.flush()
        async with asyncio.TaskGroup() as group:
            while line := await reader.readline():
                group.create_task(answer(answers, line))
        await routing.stop()


if __name__ == "__main__":
    LEDGER = Path(sys.argv[2])
    settings = ProcessConfig.model_validate(json.loads(sys.argv[1]))
    configure_logs(settings.log)
    asyncio.run(main(settings))
