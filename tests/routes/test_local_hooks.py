"""Events posted to the API reach the receivers that hear them."""

from __future__ import annotations

import asyncio

from running_routes import TENANT, bench
from trunkline.db.lease import Grant
from trunkline.routes.ends import Give, Place, Took
from trunkline.routes.event import Event, Source
from trunkline.routes.fields import RouteModel
from trunkline.routes.keys import Tenant
from trunkline.routes.outcome import Outcome
from trunkline.routes.plugin import ReceiverPlugin, Runs


class Ear(RouteModel):
    path: str = ""


class Listening:
    def __init__(self, config: Ear, place: Place) -> None:
        self._config, self._place = config, place

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        remove = self._place.hooks.add(self._place.tenant, "POST", self._config.path, give, 5.0)
        await stop.wait()
        remove()

    async def close(self) -> None: ...


async def listening(config: Ear, place: Place) -> Listening:
    return Listening(config, place)


EAR = ReceiverPlugin("ear", Ear, Runs.LOCAL, listening, everywhere=True)


async def test_a_posted_event_reaches_who_hears_its_path_and_says_who_took_it() -> None:
    async with bench(EAR) as at:
        await at.add("all", receiver={"plugin": "ear"}, sender={"plugin": "sink", "config": {"of": "all"}})
        await at.add("hook", receiver={"plugin": "ear", "config": {"path": "/hook"}}, sender={"plugin": "sink"})
        await at.add("none", receiver={"plugin": "ear"}, filterChain=[{"plugin": "block"}])
        await asyncio.sleep(0)
        event = Event({"n": 1}, {}, Source("e", TENANT))
        posted = await at.runner.hooks.post(TENANT, "post", "/hook", event)
        assert posted.done is not None
        assert posted.done.outcome is Outcome.ACKED
        assert sorted(posted.took, key=lambda took: took.route) == [Took("all", sent=1), Took("hook", sent=1)]
        posted = await at.runner.hooks.post(TENANT, "POST", "", event)
        assert posted.took == (Took("all", sent=1),)


async def test_nobody_hears_another_tenants_method_or_what_was_stopped() -> None:
    async with bench(EAR) as at:
        await at.add("r", receiver={"plugin": "ear", "config": {"path": "/hook"}})
        await asyncio.sleep(0)
        event, hooks = Event({"n": 1}), at.runner.hooks
        assert (await hooks.post(Tenant("other", "app"), "POST", "/hook", event)).done is None
        assert (await hooks.post(TENANT, "PUT", "/hook", event)).done is None
        assert (await hooks.post(TENANT, "POST", "/hook", event)).done is not None
        await at.remove("r")
        assert (await hooks.post(TENANT, "POST", "/hook", event)).done is None


async def test_a_failure_of_one_that_hears_it_is_the_outcome() -> None:
    async with bench(EAR) as at:
        await at.add("good", receiver={"plugin": "ear", "name": "a"}, sender={"plugin": "sink", "config": {"of": "good"}})
        await at.add("bad", receiver={"plugin": "ear", "name": "b"})
        at.shop.sink().broken = RuntimeError("a defect")
        await asyncio.sleep(0)
        posted = await at.runner.hooks.post(TENANT, "POST", "", Event({"n": 1}))
        assert posted.done is not None
        assert posted.done.outcome is Outcome.NACKED
