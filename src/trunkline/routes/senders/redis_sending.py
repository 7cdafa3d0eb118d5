"""Entries of a stream, in a pipeline: one way to the server and back for all messages of a call."""

from __future__ import annotations

from collections.abc import Sequence

from trunkline.db.away import in_one_line
from trunkline.routes.ends import Sendable, Undelivered
from trunkline.routes.redis_clients import AWAY, passes, redis_client
from trunkline.routes.secrets import scrubbed
from trunkline.routes.senders.redis import RedisSenderConfig

MOST_ENTRIES = 1_000  # of one pipeline, whose answers are kept until all are there


class RedisSending:
    def __init__(self, config: RedisSenderConfig) -> None:
        self._config = config
        self._redis = redis_client(config, "trunkline-route-send")

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        answers: list[Undelivered | None] = []
        for begin in range(0, len(messages), MOST_ENTRIES):
            answers += await self._added(messages[begin : begin + MOST_ENTRIES])
        return answers

    async def close(self) -> None:
        await self._redis.aclose()

    async def _added(self, messages: Sequence[Sendable]) -> list[Undelivered | None]:
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for one in messages:
                    fields = {"event": one.message.event, "id": one.id}
                    pipeline.xadd(self._config.channel, fields, maxlen=self._config.max_length, approximate=True)  # type: ignore[arg-type]
                return [self._answer(answer) for answer in await pipeline.execute(raise_on_error=False)]
        except AWAY as error:
            return [self._answer(error)] * len(messages)

    def _answer(self, answer: object) -> Undelivered | None:
        if not isinstance(answer, Exception):
            return None
        return Undelivered(scrubbed(in_one_line(answer), self._config), passes(answer))
