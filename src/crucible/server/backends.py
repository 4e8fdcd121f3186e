"""Places that can run jobs, and the named sizes."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from crucible.core.planask import PlanAsk
from crucible.core.tiers import TIERS
from crucible.server.answers import answer
from crucible.server.context import Control
from crucible.server.problems import documented

router = APIRouter(prefix="/api/v1", tags=["places"])


@router.get("/backends")
async def backends(control: Control) -> Response:
    """Each backend with its abilities, its offers, and what is missing where it is not connected."""
    return answer({"items": await control.backends()})


@router.post("/plan", responses=documented(413, 504))
async def plan(ask: PlanAsk, control: Control) -> Response:
    """What a program needs (`profile`, with evidence), and where it would run and for how much. Changes nothing.

    Takes what `POST /api/v1/jobs` takes and the program's text, `{"code": "..."}` alone will do: it may be unfinished,
    and the same text is read once, so that one may ask while somebody types. `offers` best first, each with what the
    whole job costs and when it would be done: those that can run it, then those of providers that are not connected
    (`runnable` false, `why` with the command that connects them). `rejected` with the reason. `chosen`, with the call
    that would be sent if what `job` says is added to the submission, or null, and `why`.
    """
    return answer(await control.plan(ask))


@router.get("/tiers")
async def tiers() -> Response:
    """The named sizes a job may ask for."""
    return answer({"items": [tier.as_dict() for tier in TIERS.values()]})
