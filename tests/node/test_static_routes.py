"""A site's own file of routes: what is wrong with it ends the start, what is right is in the table after it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from trunkline.core.clock import SystemClock
from trunkline.core.config import ProcessConfig
from trunkline.core.errors import Retryable
from trunkline.core.mistakes import Mistakes
from trunkline.db.embedded import free_port
from trunkline.node.routing import Routing
from trunkline.node.supervise import Supervisor
from trunkline.routes.keys import HOUSE, RouteKey

NOP = {"receiver": {"plugin": "nop"}, "sender": {"plugin": "nop"}}


def key(id: str) -> RouteKey:
    return RouteKey(HOUSE, id)


class Site:
    def __init__(self, folder: Path, dsn: str) -> None:
        self.dsn, self._file = dsn, folder / "routes.yaml"

    def write(self, *routes: dict[str, Any]) -> None:
        self._file.write_text(yaml.safe_dump({"routes": list(routes)}))

    def routing(self, supervisor: Supervisor) -> Routing:
        config = ProcessConfig.model_validate({"site": "leaf", "database": self.dsn, "routes": str(self._file)})
        return Routing(config, supervisor, SystemClock(), random.random)

    @asynccontextmanager
    async def started(self) -> AsyncIterator[Routing]:
        async with Supervisor(SystemClock(), random.random) as supervisor:
            routing = self.routing(supervisor)
            await routing.start()
            try:
                yield routing
            finally:
                await routing.stop()


@pytest.fixture
def site(tmp_path: Path, make_database: Callable[..., str]) -> Site:
    return Site(tmp_path, make_database("queues", "routes"))


async def test_all_that_is_wrong_with_the_file_comes_at_once_with_its_lines(site: Site) -> None:
    site.write(
        {"id": "a", **NOP, "sender": {"plugin": "no"}}, {"id": "b", **NOP, "filterChain": [{"plugin": "js", "config": {}}]}
    )
    with pytest.raises(Mistakes) as wrong:
        site.routing(Supervisor(SystemClock(), random.random))
    assert {mistake.key.partition(".")[0] for mistake in wrong.value.mistakes} == {"routes[0](a)", "routes[1](b)"}
    assert all(mistake.line for mistake in wrong.value.mistakes)


async def test_the_file_wins_at_each_start_and_what_did_not_change_keeps_its_revision(site: Site) -> None:
    site.write({"id": "a", **NOP}, {"id": "b", **NOP})
    async with site.started() as routing:
        manager = routing.operating.manager
        first = manager.statuses()
        assert {at.id: status.live for at, status in first.items()} == {"a": True, "b": True}
        await manager.add(HOUSE, {**NOP, "userId": "somebody"}, "b")
        changed = manager.status(key("b"))
    async with site.started() as routing:
        again = routing.operating.manager.statuses()
        assert again[key("a")] == first[key("a")]
        assert again[key("b")].hash == first[key("b")].hash != changed.hash
        assert again[key("b")].revision > changed.revision


async def test_what_left_the_file_stays_in_the_table_until_it_is_removed_there(site: Site) -> None:
    site.write({"id": "a", **NOP}, {"id": "b", **NOP})
    async with site.started():
        pass
    site.write({"id": "b", **NOP})
    async with site.started() as routing:
        assert set(routing.operating.manager.statuses()) == {key("a"), key("b")}
        await routing.operating.manager.remove(key("a"))
    async with site.started() as routing:
        assert set(routing.operating.manager.statuses()) == {key("b")}


async def test_inactive_routes_of_the_file_rest_and_the_check_says_what_runs(site: Site) -> None:
    site.write({"id": "a", **NOP}, {"id": "b", **NOP, "inactive": True})
    async with site.started() as routing:
        assert not routing.operating.manager.status(key("b")).live
        check = routing.check()
        assert check.ok
        assert check.reason.startswith("1 live route of 2 ids, revision 1; compared with the storage ")
        assert routing.numbers()["resting"] == 1
    assert not routing.check().ok


async def test_a_start_that_fails_leaves_nothing_behind_and_may_be_tried_again(site: Site) -> None:
    config = ProcessConfig.model_validate(
        {"site": "leaf", "database": site.dsn, "routing": {"storage": "postgres", "sync": f"redis://127.0.0.1:{free_port()}/0"}}
    )
    async with Supervisor(SystemClock(), random.random) as supervisor:
        routing = Routing(config, supervisor, SystemClock(), random.random)
        for _ in range(2):
            with pytest.raises(Retryable, match="Redis"):
                await routing.start()
            assert not routing.check().ok
        await routing.stop()
