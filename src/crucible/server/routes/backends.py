"""Routes of backends, plans, predictions and tiers."""

from __future__ import annotations

from fastapi import APIRouter

from crucible.core.compute.tiers import TIERS
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.views.compute import BackendPage, TierPage
from crucible.core.views.plans import PlanView
from crucible.core.views.predictions import PredictionPage
from crucible.server.context import Control, Who
from crucible.server.http.problems import problem_responses
from crucible.server.security.size_limits import Cursor, PageSize

router = APIRouter(prefix="/api/v1", tags=["backends"])


@router.get("/backends")
async def backends(control: Control) -> BackendPage:
    """List the connected backends with their capabilities and offers.

    `others` lists known backends that are not connected; `why` has the command that connects each of them, or says that
    there is none.
    """
    return await control.backends.list_backends()


@router.post("/plan", responses=problem_responses(413, 504))
async def plan(request: PlanRequest, control: Control, who: Who) -> PlanView:
    """Analyze a program and rank the offers that could run it. Changes nothing.

    The body has the fields of `POST /api/v1/jobs` and the program's text; `{"code": "..."}` alone is enough. The
    program may be unfinished, and the same text is analyzed only once, so clients may call this while the user types.

    `profile` says what the program needs, with evidence. `offers` lists offers with the cost and the completion time of
    the whole job: first those that can run it, best first, then those of providers that are not connected (`runnable`
    is false, and `why` says how to connect them). `rejected` lists the other offers with the reason. `chosen` is the
    offer that a submission gets if the fields of `job` are added to it, with the call that would be sent; it may be
    null, and `why` explains the choice. `learned` says how much the runtimes of past jobs correct the estimate.
    """
    return await control.plans.plan(who, request)


@router.get("/predictions")
async def predictions(control: Control, who: Who, limit: PageSize = 50, cursor: Cursor = None) -> PredictionPage:
    """Return one page of predicted and actual runtimes, newest first, and the accuracy of all predictions.

    `error` is relative to the actual runtime. `why_not` says why a job does not count. `next` is the cursor of the next
    page.
    """
    return await control.plans.predictions(who, limit=limit, cursor=cursor)


@router.get("/tiers")
async def tiers() -> TierPage:
    """List the tiers: the named sizes that a job may ask for."""
    return TierPage(items=tuple(tier.view() for tier in TIERS.values()))
