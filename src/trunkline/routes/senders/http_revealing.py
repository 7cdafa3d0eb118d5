"""Secrets of requests, put in right before they are sent.

A message says `secret://api.key` where its sender's configuration does: so it may wait in the outbox, and be shown as a dead
letter. Events cannot ask for a secret: only the references of the configuration are followed, and only where they stand there.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from trunkline.routes.ends import Sendable, TimedSending, Undelivered
from trunkline.routes.senders.http import HttpSenderConfig, Request, is_reference, revealed_headers


class Revealing:
    def __init__(self, config: HttpSenderConfig, sending: TimedSending) -> None:
        self._url = config.url if is_reference(config.url) else None
        self._headers = {
            name.lower(): (config.headers[name].shown, secret) for name, secret in revealed_headers(config).items()
        }
        self._sending = sending

    async def send(self, messages: Sequence[Sendable]) -> Sequence[Undelivered | None]:
        return await self._sending.send(self._all(messages))

    async def send_within(self, messages: Sequence[Sendable], seconds: float) -> Sequence[Undelivered | None]:
        return await self._sending.send_within(self._all(messages), seconds)

    async def close(self) -> None:
        await self._sending.close()

    def _all(self, messages: Sequence[Sendable]) -> Sequence[Sendable]:
        if self._url is None and not self._headers:
            return messages
        return [replace(one, message=self._revealed(one.message)) for one in messages]

    def _revealed(self, request: Request) -> Request:
        headers = {name: self._header(name, value) for name, value in request.headers.items()}
        return replace(request, url=self._address(request.url), headers=headers)

    def _header(self, name: str, value: str) -> str:
        shown, secret = self._headers.get(name, ("", ""))
        return secret if shown and value == shown else value

    def _address(self, url: str) -> str:
        if self._url is None or not url.startswith(self._url.shown):
            return url
        return self._url.reveal() + url.removeprefix(self._url.shown)
