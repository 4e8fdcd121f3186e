"""Foresight: how long a job takes whose place its owner named, told once it is submitted.

Nobody asked for a plan there, so nobody waits for this: the program is read from its bundle afterwards, one job after
another, and what is found is written down as a plan's word would have been. A hint for the future: what a server that
stops has not got to, or too many submissions at once push out, teaches nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque

import structlog
from pydantic import ValidationError
from sqlalchemy import Connection

from crucible.control import predictions
from crucible.control.forecasts import Forecast
from crucible.control.plans import Plans
from crucible.control.ports import Ports
from crucible.control.programs import program_in
from crucible.core.errors import CrucibleError
from crucible.core.planrequest import PlanRequest
from crucible.core.spec import JobSpec, Source
from crucible.storage import BundleStore
from crucible.wire.tarstream import BadArchive

MOST = 200
"""Jobs that wait to be looked at; of more the newest."""
CALM_SECONDS = 2.0
"""After a submission: its job's start comes first."""
LANE = "foresight"
SECONDS = 30.0

log = structlog.get_logger(__name__)


class Foresight:
    def __init__(self, ports: Ports, plans: Plans) -> None:
        self._ports = ports
        self._plans = plans
        self._store = BundleStore(ports.store)
        self._waiting: deque[tuple[str, JobSpec]] = deque(maxlen=MOST)
        self._looking: asyncio.Task[None] | None = None

    def submitted(self, job: str, spec: JobSpec) -> None:
        """A job is durable. Returns at once."""
        if not is_foreseen(spec):
            return
        self._waiting.append((job, spec))
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="foresight")

    async def rest(self) -> None:
        """Until nothing waits to be looked at."""
        if self._looking is not None:
            await self._looking

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        while self._waiting:
            await self._ports.clock.sleep(CALM_SECONDS)
            for job, spec in [self._waiting.popleft() for _ in range(len(self._waiting))]:
                try:
                    await self._look_at(job, spec)
                except (CrucibleError, BadArchive) as error:
                    log.info("a job's time is not foreseen", job=job, error=str(error))
                except Exception:
                    log.exception("foreseeing a job's time broke", job=job)

    async def _look_at(self, job: str, spec: JobSpec) -> None:
        ask = await self._ports.calls.run(LANE, lambda: self._ask(spec), SECONDS)
        forecast = None if ask is None else await self._plans.forecast(ask, self._ports.clock.now())
        if forecast is not None:
            told = forecast
            await self._ports.db.write(lambda conn: self._note(conn, job, told))

    def _ask(self, spec: JobSpec) -> PlanRequest | None:
        """The question that its plan would have been the answer to; None where there is no program to be read."""
        assert spec.bundle is not None
        files = program_in(self._store.open(spec.bundle), spec.command)
        if files is None:
            return None
        unsaid = {"source": Source(), "env": {}, "secrets": {}, "data": (), "bundle": None}
        try:
            return PlanRequest.model_validate({**dict(spec), **unsaid, "files": files, "backend": spec.backends[0]})
        except ValidationError:
            return None  # names that no program has

    def _note(self, conn: Connection, job: str, forecast: Forecast) -> None:
        """A word on what has ended already would be none on what is to come."""
        predictions.note_late(conn, job, forecast, self._ports.clock.now())


def is_foreseen(spec: JobSpec) -> bool:
    """Whether it goes to a place by its owner's word, with its code, from its beginning."""
    return (
        spec.backend is not None
        and spec.plan is None
        and spec.resume_from is None
        and spec.bundle is not None
        and spec.in_place is None
    )
