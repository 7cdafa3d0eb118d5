"""One node's API, as the commands ask it: a refusal is an error with its next step, and so is silence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from trunkline.core.errors import Invalid, Retryable, TrunklineError

TIMEOUT = httpx.Timeout(15.0, connect=5.0)  # more than the node itself gives a request
_PROBLEM = "urn:trunkline:problem:"


class Refusal(TrunklineError):
    """What the node answered instead; `slug` is its kind. `mistakes`: where several things are wrong, each of them."""

    def __init__(self, slug: str, what: str, why: str, next_step: str, mistakes: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(what, why, next_step)
        self.slug, self.mistakes = slug, mistakes


class Client:
    def __init__(self, url: str | None, token: str | None, timeout: httpx.Timeout = TIMEOUT) -> None:
        self.url = base_url(url)
        self._http = httpx.Client(base_url=self.url, headers=authorization(token), timeout=timeout, trust_env=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(self, method: str, path: str, body: Any = None, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = self._http.request(method, path, json=body, params=params)
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from None
        return document(answer, self.url)

    def pages(self, path: str, name: str, params: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """All that the answer has under `name`, page after page."""
        after: str | None = ""
        while after is not None:
            page = self.ask("GET", path, params={**params, "after": after})
            yield from page[name].items()
            after = page["next"]


def base_url(url: str | None) -> str:
    if not url:
        next_step = (
            "give --url http://<api.listen of a node>, or set TRUNKLINE_API_URL; a node writes it to <runtime>/node.json"
        )
        raise Invalid("node", "it is not said which one to ask", next_step)
    text = url.rstrip("/") if "://" in url else f"http://{url.rstrip('/')}"
    try:
        parsed = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise Invalid(f"URL {url!r}", str(error), "write it like http://127.0.0.1:8400") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise Invalid(f"URL {url!r}", "it is not one of HTTP", "write it like http://127.0.0.1:8400")
    return text


def authorization(token: str | None) -> dict[str, str]:
    """`token` is the token itself, or @ and the file that holds it."""
    if not token:
        return {}
    if token.startswith("@"):
        try:
            token = Path(token[1:]).read_text().strip()
        except (OSError, UnicodeError) as error:
            raise Invalid(f"token {token!r}", f"the file cannot be read: {error}", "name a file that holds one token") from None
    if not (token.isascii() and token.isprintable()):
        raise Invalid("token", "it has characters that no token has", "see what `trunkline token new` gave")
    return {"Authorization": f"Bearer {token}"}


def unreachable(url: str, error: httpx.HTTPError) -> Retryable:
    why = "it did not answer in time" if isinstance(error, httpx.TimeoutException) else f"it cannot be reached: {error}"
    return Retryable(f"API at {url}", why, "see that the node runs and that --url is where its API listens")


def document(answer: httpx.Response, url: str) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Invalid(f"API at {url}", f"status {answer.status_code}, and not an answer of a node", "correct --url")
    if answer.is_success:
        return found
    what, _, why = str(found.get("detail", "")).partition(": ")
    next_step = str(found.get("next", "see the node's log"))
    slug, mistakes = str(found.get("type", "")).removeprefix(_PROBLEM), found.get("mistakes") or ()
    raise Refusal(slug, what, why or f"status {answer.status_code}", next_step, mistakes)


def at(area: str, *parts: str) -> str:
    """The path of something in an area. Dots are encoded, too: `..` would be taken for a step up."""
    return "/".join(("/v1/store", *(quote(part, safe=":").replace(".", "%2E") for part in (area, *parts))))
