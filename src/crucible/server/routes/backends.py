"""Routes of backends and their connections, plans, predictions and tiers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from crucible.core.compute.tiers import TIERS
from crucible.core.requests import BackendSettingsChange
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.views.backends import BackendCheckView, BackendDisconnectView, BackendSettingsView
from crucible.core.views.compute import BackendPage, TierPage
from crucible.core.views.plans import PlanView
from crucible.core.views.predictions import PredictionPage
from crucible.server.context import Control, Who
from crucible.server.http.problems import problem_responses
from crucible.server.security.size_limits import Cursor, PageSize

router = APIRouter(prefix="/api/v1", tags=["backends"])

BackendName = Annotated[str, Path(min_length=1, max_length=40)]


@router.get("/backends")
async def backends(control: Control) -> BackendPage:
    """List the connected backends with their capabilities and offers.

    `others` lists known backends that are not connected; `why` has the command that connects each of them, or says that
    there is none.
    """
    return await control.backends.list_backends()


@router.get("/backends/{backend}")
async def backend(backend: BackendName, control: Control, who: Who) -> BackendSettingsView:
    """Describe a backend's settings, with their values and where each comes from; for administrators.

    A value that is secret is `***`. `machines` are those of this backend that are not gone.
    """
    return await control.backends.show(who, backend)


@router.post("/backends/{backend}/check", responses=problem_responses(503, 504))
async def check_backend(
    backend: BackendName, body: BackendSettingsChange, control: Control, who: Who
) -> BackendCheckView:
    """Check a backend as it would be with these settings, and show its cheapest offers; for administrators.

    Changes nothing. `changes` are the stored settings that connecting it would change.
    """
    return await control.backends.check(who, backend, body.settings)


@router.post("/backends/{backend}/connect", responses=problem_responses(409, 503, 504))
async def connect_backend(
    backend: BackendName, body: BackendSettingsChange, control: Control, who: Who
) -> BackendCheckView:
    """Check a backend with these settings and, if nothing is wrong, store them and connect it; for administrators.

    Every server of this deployment uses it from then on. If a check fails, nothing is stored, and the problem has the
    `findings`. A connected backend gets the new settings; those that are left out stay.
    """
    return await control.backends.connect(who, backend, body.settings)


@router.post("/backends/{backend}/disconnect", responses=problem_responses(404, 409))
async def disconnect_backend(backend: BackendName, control: Control, who: Who) -> BackendDisconnectView:
    """Place no jobs on a backend any more, and disconnect it once its machines are gone; for administrators.

    Until then its state is `disconnecting`, and its jobs continue.
    """
    return await control.backends.disconnect(who, backend)


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
