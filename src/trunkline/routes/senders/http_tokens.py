"""What a request proves with who sends it."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from urllib.parse import quote

import httpx

from trunkline.core.clock import Clock
from trunkline.routes.senders.http import HttpAuth

_EARLY = 0.1  # of a token's time, at most so many seconds before its end a new one is asked for
_EARLY_SECONDS = 30.0
_UNTOLD_SECONDS = 300.0  # so long a token is kept that does not say how long it lasts


class NoToken(LookupError):
    """(reason, whether another try may help)"""


class Login:
    """One that needs to ask nobody."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers

    async def headers(self) -> dict[str, str]:
        return self._headers

    def renews(self) -> bool:
        """Told that they were not accepted: whether asking anew gives others."""
        return False


class ClientCredentials(Login):
    def __init__(self, auth: HttpAuth, client: httpx.AsyncClient, clock: Clock) -> None:
        super().__init__({})
        self._auth, self._client, self._clock = auth, client, clock
        self._until = float("-inf")
        self._one = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        async with self._one:
            if self._clock.monotonic() >= self._until:
                await self._ask()
            return self._headers

    def renews(self) -> bool:
        self._until = float("-inf")
        return True

    async def _ask(self) -> None:
        secret = self._auth.client_secret.reveal() if self._auth.client_secret else ""
        form = {"grant_type": "client_credentials"} | ({"scope": " ".join(self._auth.scopes)} if self._auth.scopes else {})
        login = _basic(quote(self._auth.client_id, ""), quote(secret, ""))
        answer = await self._client.post(self._auth.token_url, data=form, headers=login)
        if answer.status_code != 200:
            again = answer.status_code in (408, 425, 429) or answer.status_code >= 500
            raise NoToken(f"no token: {self._auth.token_url} says {answer.status_code}", again)
        try:
            given = answer.json()
            token, seconds = str(given["access_token"]), float(given.get("expires_in", _UNTOLD_SECONDS))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise NoToken(f"no token: the answer of {self._auth.token_url} has none", False) from None
        self._headers = {"authorization": f"Bearer {token}"}
        self._until = self._clock.monotonic() + seconds - min(_EARLY_SECONDS, _EARLY * seconds)


def login_of(auth: HttpAuth, client: httpx.AsyncClient, clock: Clock) -> Login:
    if auth.type == "basic":
        return Login(_basic(auth.username, auth.password.reveal() if auth.password else ""))
    if auth.type == "bearer":
        return Login({"authorization": f"Bearer {auth.token.reveal() if auth.token else ''}"})
    return ClientCredentials(auth, client, clock) if auth.type == "oauth2" else Login({})


def _basic(name: str, password: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"}
