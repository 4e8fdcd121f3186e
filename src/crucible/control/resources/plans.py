"""Plans: where a job would run and for how much, and how good past forecasts were."""

from __future__ import annotations

from crucible.control.estimates import accuracy
from crucible.control.parts import Parts
from crucible.core.people import Identity
from crucible.core.planrequest import PlanRequest
from crucible.core.views.plans import PlanView
from crucible.core.views.predictions import PredictionPage


class Plans:
    def __init__(self, parts: Parts) -> None:
        self._ports = parts.ports
        self._plans = parts.plans

    async def plan(self, who: Identity, request: PlanRequest) -> PlanView:
        """Return offers best first, those rejected with the reason, and the chosen one with its LaunchCall.

        Nothing is sent to a provider, and nothing changes.
        """
        who.need_submitter()
        return PlanView.model_validate(await self._plans.of(request, self._ports.clock.now(), who.authority))

    async def predictions(self, who: Identity, *, limit: int, cursor: str | None) -> PredictionPage:
        """Return what was predicted of jobs beside what they took, newest first, and the overall accuracy."""
        return await self._ports.db.read(lambda conn: accuracy.list_predictions(conn, limit, cursor, who))
