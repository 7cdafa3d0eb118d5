"""What plugins raise says none of the secrets that they were given, wherever it is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from running_routes import bench, until
from trunkline.core.errors import Retryable, Terminal
from trunkline.core.secret import Secret
from trunkline.db.lease import Grant
from trunkline.routes.ends import Give, Place, Sendable, Undelivered
from trunkline.routes.fields import RouteModel
from trunkline.routes.plugin import ReceiverPlugin, Runs, SenderPlugin

KEY = "hunter2-never-shown"
SAYS = f"no login with {KEY}"
ERRORS: dict[type[Exception], tuple[str, ...]] = {
    RuntimeError: (SAYS,), TimeoutError: (SAYS,), KeyError: (SAYS,), Terminal: (KEY, SAYS, KEY), Retryable: (KEY, SAYS, KEY),
}  # fmt: skip


class Keyed(RouteModel):
    key: Secret


class Talkative:
    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    async def run(self, give: Give, stop: asyncio.Event, grant: Grant | None) -> None:
        raise self._error(*ERRORS[self._error])

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        raise self._error(*ERRORS[self._error])

    async def close(self) -> None:
        raise self._error(*ERRORS[self._error])


@pytest.mark.parametrize("error", ERRORS)
async def test_q4_what_a_plugin_raises_holds_no_secret(error: type[Exception]) -> None:
    async def opens(config: Keyed, place: Place) -> Any:
        return Talkative(error)

    async def fails(config: Keyed, place: Place) -> Any:
        raise error(*ERRORS[error])

    talks, bad = {"plugin": "talks", "config": {"key": KEY}}, {"plugin": "bad", "config": {"key": KEY}}
    plugins = (
        SenderPlugin("talks", Keyed, Runs.LOCAL, open=opens),
        SenderPlugin("bad", Keyed, Runs.LOCAL, open=fails),
        ReceiverPlugin("talks", Keyed, Runs.LOCAL, opens),
    )
    said: list[Any] = []
    with capture_logs() as logs:
        async with bench(*plugins) as at:
            with pytest.raises((Terminal, Retryable)) as refused:
                await at.add("bad", sender=bad)
            said.append(str(refused.value))
            await at.add("reads", receiver=talks)
            await until(lambda: [one for one in at.runner.receivers() if one.failing])
            said += [one.failing for one in at.runner.receivers()]
            await at.add("sends", sender=talks)
            said += [(await at.shop.tap().pour(1, seconds=2.0))[0].reason]
    assert any("no login with ***" in text for text in said)
    assert KEY not in f"{said} {logs}"
