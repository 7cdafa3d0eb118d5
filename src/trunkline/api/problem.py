"""Every refusal as problem details (RFC 9457): one table of kinds, one way from an error to its answer.

`type` is a stable URN that programs compare, `title` says the kind, `detail` names the thing and the reason, `next` the next
step, and `instance` the request, under the id that the node's log carries too. A defect tells nothing of the inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from trunkline.core.errors import Invalid, Retryable, Terminal, TrunklineError
from trunkline.core.mistakes import Mistake, Mistakes

MEDIA_TYPE = "application/problem+json"
SEE_DOCS = "see /docs for what there is"
MOST_IN_WORDS, MOST_MISTAKES = 5, 1_000  # of a thousand routes each line may be wrong


@dataclass(frozen=True)
class Kind:
    slug: str
    status: int
    title: str

    @property
    def urn(self) -> str:
        return f"urn:trunkline:problem:{self.slug}"


INVALID = Kind("invalid", 400, "The request is wrong")
MALFORMED = Kind("malformed", 400, "This is not HTTP")
GONE = Kind("client-gone", 400, "The client went away before its request was complete")
NO_TOKEN = Kind("unauthenticated", 401, "A valid token is needed")
FORBIDDEN = Kind("forbidden", 403, "The token does not reach this far")
FOREIGN = Kind("foreign-page", 403, "Pages of other sites may not use this API")
NOT_FOUND = Kind("not-found", 404, "There is no such thing here")
NO_SITE = Kind("no-such-site", 404, "This node knows no other site of that name")
NO_QUEUE = Kind("no-such-queue", 404, "This site has no queue of that name")
NO_BRIDGE = Kind("no-bridge", 404, "This site's database has no status bridge")
NO_STATUS = Kind("no-such-status", 404, "The bridge has nothing of this name")
NO_AREA = Kind("no-such-area", 404, "This node is not in that area of the store")
NO_KEY = Kind("no-such-key", 404, "Nothing is stored under this key")
NO_TENANT = Kind("no-such-tenant", 404, "This site has no tenant of that name")
NO_ROUTE = Kind("no-such-route", 404, "The tenant has no route of that id")
NO_FRAGMENT = Kind("no-such-fragment", 404, "The tenant has no fragment of that name")
NO_PLUGIN = Kind("no-such-plugin", 404, "There is no plugin of that name")
NO_CHANGE = Kind("no-such-change", 404, "This node knows no such change of routes")
NO_LETTER = Kind("no-such-dead-letter", 404, "There is no dead letter of that id")
NO_HOOK = Kind("no-receiver", 404, "No route's receiver hears what is posted there")
NOT_ALLOWED = Kind("method-not-allowed", 405, "The method does not fit this address")
NOT_TAKEN = Kind("not-taken", 409, "The store did not take this")
CONFLICT = Kind("conflict", 409, "Somebody else changed it, or it is in use")
EXISTS = Kind("exists", 409, "It is there already")
NOT_LIVE = Kind("not-live", 409, "The route does not run here")
TOO_LARGE = Kind("too-large", 413, "The request is too large")
TOO_MANY = Kind("too-many-requests", 429, "Too many requests")
NO_QUOTA = Kind("quota-exhausted", 429, "The tenant's quota of events is used up")
DEFECT = Kind("defect", 500, "The node has a defect")
FAILED = Kind("failed", 500, "The node cannot do this until somebody changes something")
NOT_DELIVERED = Kind("not-delivered", 502, "The event was not delivered")
BUSY = Kind("busy", 503, "The node has too many requests at once")
TOO_SLOW = Kind("too-slow", 503, "The request took too long")
UNAVAILABLE = Kind("unavailable", 503, "The node cannot do this now")
NOT_DONE = Kind("not-done-in-time", 504, "The event was not done in time")

KINDS = (
    INVALID, MALFORMED, GONE, NO_TOKEN, FORBIDDEN, FOREIGN, NOT_FOUND, NO_SITE, NO_QUEUE, NO_BRIDGE, NO_STATUS,
    NO_AREA, NO_KEY, NO_TENANT, NO_ROUTE, NO_FRAGMENT, NO_PLUGIN, NO_CHANGE, NO_LETTER, NO_HOOK, NOT_ALLOWED, NOT_TAKEN,
    CONFLICT, EXISTS, NOT_LIVE, TOO_LARGE, TOO_MANY, NO_QUOTA, DEFECT, FAILED, NOT_DELIVERED, BUSY, TOO_SLOW, UNAVAILABLE,
    NOT_DONE,
)  # fmt: skip

# The first type that fits gives the kind.
_OF_ERRORS: tuple[tuple[type[TrunklineError], Kind], ...] = (
    (Invalid, INVALID),
    (Retryable, UNAVAILABLE),
    (TrunklineError, FAILED),
)
_OF_STATUS = {404: (NOT_FOUND, "nothing is at this address"), 405: (NOT_ALLOWED, "the Allow header says which methods do")}


class MistakeShown(BaseModel):
    """One of several things that are wrong."""

    key: str = Field(description="where; empty: the whole", examples=["filterChain[0].plugin"])
    reason: str = Field(description="why it is wrong")
    next: str = Field(description="what would be right")


class Problem(BaseModel):
    """Problem details as RFC 9457 has them, and the next step."""

    type: str = Field(description="what kind of problem this is; compare this one", examples=[INVALID.urn])
    title: str = Field(description="the kind in words")
    status: int = Field(description="the HTTP status")
    detail: str = Field(description="the thing and the reason")
    instance: str = Field(description="this request, by the id that the node's log carries too")
    next: str = Field(description="the next step")
    mistakes: list[MistakeShown] | None = Field(default=None, description="only where several things may be wrong: all of them")


class Refused(Terminal):
    """The API itself says no; nothing was changed."""

    def __init__(
        self, kind: Kind, what: str, why: str, next_step: str, headers: Mapping[str, str] | None = None,
        mistakes: Sequence[Mistake] = (),
    ) -> None:  # fmt: skip
        super().__init__(what, why, next_step)
        self.kind = kind
        self.headers = dict(headers or {})
        self.mistakes = mistakes


def refusal(error: Exception, asked: str) -> Refused:
    """Any error as the refusal of what was `asked`."""
    match error:
        case Refused():
            return error
        case Mistakes():
            why = "; ".join(map(str, error.mistakes[:MOST_IN_WORDS]))
            return Refused(INVALID, error.what, why, error.next_step, mistakes=error.mistakes[:MOST_MISTAKES])
        case TrunklineError():
            kind = next(kind for type_, kind in _OF_ERRORS if isinstance(error, type_))
            return Refused(kind, error.what, error.why, error.next_step)
        case RequestValidationError():
            why = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            return Refused(INVALID, asked, why, SEE_DOCS)
        case HTTPException():
            kind, why = _OF_STATUS.get(error.status_code, (INVALID, str(error.detail)))
            return Refused(kind, asked, why, SEE_DOCS, error.headers)
        case ClientDisconnect():
            return Refused(GONE, asked, "the connection was closed", "send it again")
        case TimeoutError():
            return Refused(UNAVAILABLE, asked, "the node did not answer in time", "ask again")
        case _:
            return Refused(DEFECT, asked, "an error nobody foresaw", "find the request's id in the node's log and report it")


def details(refused: Refused, request_id: str) -> Problem:
    return Problem(
        type=refused.kind.urn,
        title=refused.kind.title,
        status=refused.kind.status,
        detail=f"{refused.what}: {refused.why}",
        instance=f"urn:trunkline:request:{request_id}",
        next=refused.next_step,
        mistakes=[MistakeShown(key=one.key, reason=one.reason, next=one.next_step) for one in refused.mistakes] or None,
    )


def answer(refused: Refused, request_id: str) -> Response:
    return Response(
        details(refused, request_id).model_dump_json(exclude_none=True), refused.kind.status, refused.headers, MEDIA_TYPE
    )
