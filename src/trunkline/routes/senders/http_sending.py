"""A request for each message, several at a time: their order is not kept.

1.  2xx is sent. 408, 425, 429, 5xx and lost connections are tried again here, with growing pauses or as long as `Retry-After`
    says, within bounds; after the last attempt another try may still help. Any other status is a refusal.
2.  A token (oauth2) is kept until shortly before it ends. A 401 gets a new one, once.
3.  Nobody is redirected: a token would go along.
4.  Who has only so much time begins no request that may not end in it. So what a slow server took is known as sent, and only
    what was not begun comes again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence

import httpx

from trunkline.core.backoff import Backoff
from trunkline.db.away import in_one_line
from trunkline.routes.ends import Place, Sendable, Undelivered
from trunkline.routes.secrets import scrubbed
from trunkline.routes.senders.http import MESSAGE_ID, HttpSenderConfig, Request
from trunkline.routes.senders.http_tokens import Login, login_of

CONCURRENT = 16  # requests at a time: a server that is slow is not flooded
LONGEST_WAIT = 30.0  # of what a server may ask for with Retry-After
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_SHOWN = 200  # bytes of an answer that a reason quotes
_READ = 64 << 10  # bytes of an answer that are read, so that its connection can be used again
AGAIN = frozenset({408, 425, 429})
NOT_BEGUN = Undelivered("it was not its turn within the time that the call had", again=True)


class HttpSending:
    def __init__(self, config: HttpSenderConfig, place: Place, client: httpx.AsyncClient) -> None:
        self._config, self._place, self._client = config, place, client
        self._login: Login = login_of(config.auth, client, place.clock)
        self._free = asyncio.Semaphore(CONCURRENT)

    @classmethod
    async def open(cls, config: HttpSenderConfig, place: Place) -> HttpSending:
        limits = httpx.Limits(max_connections=CONCURRENT, max_keepalive_connections=CONCURRENT)
        client = await asyncio.to_thread(httpx.AsyncClient, timeout=config.timeout_seconds, limits=limits)
        return cls(config, place, client)

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        return await self.send_within(messages, math.inf)

    async def send_within(self, messages: Sequence[Sendable], seconds: float) -> Sequence[Undelivered | None]:
        until = asyncio.get_running_loop().time() + seconds
        last = until - min(self._config.timeout_seconds, seconds / 2)
        answers: list[Undelivered | None] = [NOT_BEGUN] * len(messages)
        places = iter(range(len(messages)))
        await asyncio.gather(*[self._work(messages, answers, places, last, until) for _ in range(CONCURRENT)])
        return answers

    async def close(self) -> None:
        await self._client.aclose()

    async def _work(
        self, messages: Sequence[Sendable], answers: list[Undelivered | None], places: Iterator[int], last: float, until: float
    ) -> None:
        """Takes one message after the other, up to the moment `last`."""
        for nth in places:
            try:
                async with asyncio.timeout_at(last):
                    await self._free.acquire()
            except TimeoutError:
                return
            try:
                if asyncio.get_running_loop().time() >= last:
                    return
                answers[nth] = await self._send(messages[nth], last, until)
            finally:
                self._free.release()

    async def _send(self, one: Sendable, last: float, until: float) -> Undelivered | None:
        backoff, now = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._place.random), asyncio.get_running_loop().time
        for left in range(self._config.attempts - 1, -1, -1):
            answer, wait = await self._attempt(one, until)
            if answer is None or not answer.again or not left:
                return answer
            pause = max(wait, backoff.after_failure())
            if now() + pause >= last:
                return answer
            await asyncio.sleep(pause)
        raise AssertionError("there is at least one attempt")

    async def _attempt(self, one: Sendable, until: float) -> tuple[Undelivered | None, float]:
        """Also the seconds that the server wants to be left alone."""
        limit = min(asyncio.get_running_loop().time() + self._config.timeout_seconds, until)
        try:
            async with asyncio.timeout_at(limit):
                status, said, wait = await self._answer(one, await self._login.headers())
                if status == 401 and self._login.renews():
                    status, said, wait = await self._answer(one, await self._login.headers())
        except TimeoutError:
            return self._undelivered(f"no answer within {self._config.timeout_seconds:g} s", True), 0.0
        except httpx.InvalidURL as error:
            return self._undelivered(f"the address cannot be used: {error}", False), 0.0
        except httpx.HTTPError as error:
            return self._undelivered(in_one_line(error) or type(error).__name__, True), 0.0
        except LookupError as error:
            return self._undelivered(str(error.args[0]), bool(error.args[1])), 0.0
        if 200 <= status < 300:
            return None, 0.0
        return self._undelivered(f"status {status}: {said}", status in AGAIN or status >= 500), wait

    async def _answer(self, one: Sendable, login: dict[str, str]) -> tuple[int, str, float]:
        request: Request = one.message
        headers = {**request.headers, MESSAGE_ID: one.id, **login}
        body = None if request.body is None else request.body.encode()
        async with self._client.stream(request.method, request.url, headers=headers, content=body) as response:
            read = bytearray()
            async for data in response.aiter_raw():
                read += data
                if len(read) > _READ:
                    break
        said = bytes(read[:_SHOWN]).decode(errors="replace")
        return response.status_code, said, _wanted(response.headers.get("retry-after", ""))

    def _undelivered(self, reason: str, again: bool) -> Undelivered:
        return Undelivered(scrubbed(reason, self._config), again)


def _wanted(retry_after: str) -> float:
    """Seconds; a date is not looked at."""
    return min(float(retry_after), LONGEST_WAIT) if retry_after.isdigit() and len(retry_after) < 9 else 0.0
