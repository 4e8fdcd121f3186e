"""Backends, plans over them, and the named sizes."""

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
    """Each backend of this server with its abilities and its offers.

    `others` are known backends that are not connected; `why` has the command that connects each, or says that there is
    none.
    """
    return await control.backends.list_backends()


@router.post("/plan", responses=problem_responses(413, 504))
async def plan(request: PlanRequest, control: Control, who: Who) -> PlanView:
    """What a program needs (`profile`, with evidence), and where it would run and for how much. Changes nothing.

    Takes what `POST /api/v1/jobs` takes and the program's text, `{"code": "..."}` alone will do: it may be unfinished,
    and the same text is read once, so clients may call this while the user types. `offers` best first, each with what
    the whole job costs and when it would be done: those that can run it, then those of providers that are not connected
    (`runnable` false, `why` with what connects them). `rejected` with the reason. `chosen`, with the call
    that would be sent if what `job` says is added to the submission, or null, and `why`. `learned` says by how much the
    times that past jobs took correct the estimate.
    """
    return await control.plans.plan(who, request)


@router.get("/predictions")
async def predictions(control: Control, who: Who, limit: PageSize = 50, cursor: Cursor = None) -> PredictionPage:
    """What plans said of jobs beside how long those took, newest first, and how good that was on the whole.

    `error` is the share of what it took; a job that does not count says in `why_not` why. `next` is the cursor of the
    following page.
    """
    return await control.plans.predictions(who, limit=limit, cursor=cursor)


@router.get("/tiers")
async def tiers() -> TierPage:
    """The named sizes a job may ask for."""
    return TierPage(items=tuple(tier.view() for tier in TIERS.values()))
