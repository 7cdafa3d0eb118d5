"""Dead letters of routes over the API."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response

from trunkline.api import routesexamples as example
from trunkline.api import routesmodels as shown
from trunkline.api.routesasking import Question, RoutesAsking, answers
from trunkline.api.routeslooks import OfApp, OfOrg, asked_tenant
from trunkline.api.routesnames import LAST
from trunkline.api.written import answer

LetterId = Annotated[int, Path(ge=1, le=LAST, description="as /v1/deadletters has it", examples=[7])]
OfRoute = Annotated[str, Query(max_length=255, description="only of the route of this id")]
After = Annotated[int, Query(ge=0, le=LAST, description="only letters behind this id")]
Limit = Annotated[int, Query(ge=1, le=1_000, description="letters at most, the oldest first")]
_ONE = "/v1/deadletters/{id}"


def offer_letters(app: FastAPI, asking: RoutesAsking) -> None:
    _offer_looks(app, asking)
    _offer_settling(app, asking)


async def _answered(asking: RoutesAsking, request: Request, id: int, question: Question[dict[str, Any]]) -> Response:
    tenant = await asking.ask(lambda at: at.letters.tenant(id))
    asking.check_reach(request, tenant)
    return answer(request, await asking.ask(question))


def _offer_looks(app: FastAPI, asking: RoutesAsking) -> None:
    @app.get(
        "/v1/deadletters",
        summary="Events and messages that no route could bring to their end",
        response_model=shown.LettersShown,
        responses=answers(shown.LettersShown, example.LETTERS, 400),
    )
    async def letters(
        request: Request, org: OfOrg = "", app: OfApp = "", route: OfRoute = "", after: After = 0, limit: Limit = 100
    ) -> Response:
        tenant = asked_tenant(asking, request, org, app)
        return answer(request, await asking.ask(lambda at: at.letters.listed(tenant, route, after, limit)))

    @app.get(
        _ONE,
        summary="One dead letter, with what it holds",
        response_model=shown.LetterShown,
        responses=answers(shown.LetterShown, example.LETTER, 400, 404),
    )
    async def letter(request: Request, id: LetterId) -> Response:
        return await _answered(asking, request, id, lambda at: at.letters.show(id))


def _offer_settling(app: FastAPI, asking: RoutesAsking) -> None:
    @app.post(
        _ONE,
        summary="Try a dead letter again",
        description="It goes to where it failed: the filter or the sender, as the route has it now. If it fails it comes back.",
        response_model=shown.LetterTried,
        responses=answers(shown.LetterTried, example.LETTER_TRIED, 400, 404),
    )
    async def replay(request: Request, id: LetterId) -> Response:
        return await _answered(asking, request, id, lambda at: at.letters.replay(id))

    @app.delete(
        _ONE,
        summary="Drop a dead letter",
        response_model=shown.LetterDropped,
        responses=answers(shown.LetterDropped, example.LETTER_DROPPED, 400, 404),
    )
    async def drop(request: Request, id: LetterId) -> Response:
        return await _answered(asking, request, id, lambda at: at.letters.drop(id))
