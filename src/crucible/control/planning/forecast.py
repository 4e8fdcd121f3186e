"""Plan every job a moment after its submission, from its bundle and spec, and store the plan with the job.

The submission commits a row that requests the plan, so that a crash loses none: the row is due until it has the plan,
the job has ended, or MAX_ATTEMPTS were made. An attempt is counted before it begins, which also keeps several servers
from planning the same job at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import structlog
from pydantic import ValidationError
from sqlalchemy import Connection, bindparam, delete, func, select, update

from crucible.control.db import schema as t
from crucible.control.db.clock import database_now
from crucible.control.db.statement import Row, Statement, insert_row
from crucible.control.jobs.views import iso
from crucible.control.planning.programs import read_program
from crucible.control.resources.plans import Plans
from crucible.control.runtime.ports import Ports
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.core.errors import CrucibleError
from crucible.core.job.spec import JobSpec, Source
from crucible.core.lifecycle import JobState
from crucible.core.routing.corrections import Forecast
from crucible.core.routing.plan_request import READ, PlanRequest
from crucible.core.views.plans import JobPlanView
from crucible.storage import BundleStore
from crucible.wire.files.tar_stream import BadArchive

TOPIC = "plans"
LANE = "forecast"
SECONDS = 30.0
DELAY_SECONDS = 1.0
"""Between a submission and its plan: starting the job comes first."""
PAUSE_SECONDS = 0.2
"""Between two plans: thousands of jobs that are submitted at once must not slow down the server."""
IDLE_SECONDS = 5.0
RETRY_SECONDS = 120.0
"""Longer than all deadlines of an attempt together."""
MAX_ATTEMPTS = 3
MOST_AGAIN = 200
"""Number of waiting jobs that are planned again when backends come or go; new jobs wait behind them."""
MAX_OFFERS = 5
MAX_TEXT = 500
MAX_NAME = 100
"""Characters of the name of a framework or a GPU in a prediction."""

_p, _j = t.plans.c, t.jobs.c
_REQUEST = Statement(insert_row(t.plans, ["job", "tries", "due_at"]))
_WAITING = select(_j.id).where(t.QUEUED).order_by(_j.id).limit(MOST_AGAIN)
_REQUEST_AGAIN = Statement(
    update(t.plans).where(_p.job.in_(_WAITING)).values(document=None, made_at=None, tries=0, due_at=bindparam("at"))
)
DUE = (
    select(_p.job, _p.tries, _p.due_at, _j.state, _j.spec)
    .select_from(t.plans.join(t.jobs, _j.id == _p.job))
    # coalesce, or SQLite would scan all jobs of the backend instead of the few rows that are due.
    .where(_p.due_at.is_not(None), func.coalesce(_j.backend, "").in_(bindparam("backends", expanding=True)))
    .order_by(_p.due_at)
    .limit(1)
)
_DUE = Statement(DUE)
_CLAIM = Statement(
    update(t.plans)
    .where(_p.job == bindparam("planned"), _p.tries == bindparam("seen"), _p.due_at.is_not(None))
    .values(tries=_p.tries + 1, due_at=bindparam("again"))
)
_STORE = Statement(
    update(t.plans)
    .where(_p.job == bindparam("planned"), _p.document.is_(None))
    .values(document=bindparam("text"), made_at=bindparam("at"), due_at=None)
)
_JOB = Statement(select(_j.state, _j.project).where(_j.id == bindparam("job")))
_PLAN = Statement(select(_p.document, _p.made_at).where(_p.job == bindparam("job"), _p.document.is_not(None)))
_FORGET = Statement(delete(t.predictions).where(t.predictions.c.job == bindparam("planned")))
_PREDICT = Statement(insert_row(t.predictions, t.predictions.c.keys()))
_PREDICTED = Statement(select(t.predictions.c.predicted_seconds).where(t.predictions.c.job == bindparam("job")))

log = structlog.get_logger(__name__)


def request_plan(conn: Connection, job: str, at: float) -> None:
    """Request the plan of a job, in the transaction that stores the job."""
    _REQUEST.run(conn, job=job, tries=0, due_at=at + DELAY_SECONDS)


def request_again(conn: Connection, at: float) -> int:
    """Request new plans of the first waiting jobs, because backends came or went. Return their number."""
    return _REQUEST_AGAIN.run(conn, at=at)


def stored_plan(conn: Connection, job: str) -> JobPlanView | None:
    """Return the plan of a job, or None if there is none yet."""
    row = _PLAN.first(conn, job=job)
    if row is None:
        return None
    return JobPlanView.model_validate({**json.loads(row["document"]), "made_at": iso(row["made_at"])})


def predicted_seconds(conn: Connection, job: str) -> float | None:
    """Return the predicted runtime of a job in seconds, or None."""
    found = _PREDICTED.value(conn, job=job)
    return None if found is None else float(found)


class Forecasts:
    """Plans the jobs whose backend is connected here."""

    def __init__(self, ports: Ports, backends: ConnectedBackends, plans: Plans) -> None:
        self._ports = ports
        self._backends = backends
        self._plans = plans
        self._bundles = BundleStore(ports.store)

    async def round(self) -> float:
        """Plan the job that has been due longest. Return the seconds until another may be due."""
        row = await self._ports.db.read(lambda conn: _DUE.first(conn, backends=self._backends.names()))
        wait = IDLE_SECONDS if row is None else row["due_at"] - self._ports.clock.now()
        if row is None or wait > 0:
            return min(wait, IDLE_SECONDS)
        if await self._ports.db.write(lambda conn: self._claim(conn, row)):
            await self._plan(row["job"], JobSpec.model_validate_json(row["spec"]))
        return PAUSE_SECONDS

    def _claim(self, conn: Connection, row: Row) -> bool:
        """Count the attempt. Return whether this process should plan the job."""
        ended, tries = JobState(row["state"]).terminal, row["tries"] + 1
        again = None if ended or tries == MAX_ATTEMPTS else database_now(conn, self._ports.clock.now) + RETRY_SECONDS
        return _CLAIM.run(conn, planned=row["job"], seen=row["tries"], again=again) == 1 and not ended

    async def _plan(self, job: str, spec: JobSpec) -> None:
        try:
            request = await self._ports.calls.run(LANE, lambda: self._plan_request(spec), SECONDS)
            plan, forecast = await self._plans.plan_job(request)
        except CrucibleError as error:
            log.info("a job could not be planned", job=job, error=str(error))
            return
        if spec.resume_from is not None:  # the rest of a run says nothing about a whole one
            forecast = None
        document = json.dumps(_clip(plan.as_json()))
        await self._ports.db.write(lambda conn: self._store_plan(conn, job, document, forecast))

    def _plan_request(self, spec: JobSpec) -> PlanRequest:
        """Return the plan request of the job, with the text of its program if its bundle holds that."""
        # Without the environment, which may hold secrets, and what a plan does not depend on.
        bare = {**dict(spec), "source": Source(), "env": {}, "data": (), "bundle": None}
        ask = {**bare, "backend": spec.backends[0], "limit": MAX_OFFERS}
        try:
            return PlanRequest.model_validate({**ask, "files": self._program(spec)})
        except ValidationError:
            return PlanRequest.model_validate(ask)  # file names that are not valid in a request

    def _program(self, spec: JobSpec) -> dict[str, str]:
        if spec.bundle is None or not any(word.endswith(READ) for word in spec.command):
            return {}
        try:
            return read_program(self._bundles.open(spec.bundle), spec.words_in_bundle) or {}
        except BadArchive:
            return {}

    def _store_plan(self, conn: Connection, job: str, document: str, forecast: Forecast | None) -> None:
        """Store the plan and the prediction, but none for a job that has ended: that would predict the past."""
        row, at = _JOB.first(conn, job=job), database_now(conn, self._ports.clock.now)
        if row is None or JobState(row["state"]).terminal:
            return
        if _STORE.run(conn, planned=job, text=document, at=at) == 1 and forecast is not None:
            _FORGET.run(conn, planned=job)  # a prediction from before the backends changed
            _predict(conn, job, row["project"], forecast, at)


def _predict(conn: Connection, job: str, project: str, forecast: Forecast, at: float) -> None:
    _PREDICT.run(
        conn,
        job=job,
        project=project,
        script=forecast.similarity.script,
        framework=forecast.similarity.framework[:MAX_NAME],
        gpu=forecast.similarity.gpu[:MAX_NAME],
        backend=forecast.backend,
        instance_type=forecast.instance_type,
        analytic_seconds=forecast.analytic,
        predicted_seconds=forecast.predicted,
        made_at=at,
    )


def _clip(value: object) -> object:
    """Return the value with its texts cut: reasons repeat what the user asked for, however long that is."""
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if isinstance(value, Mapping):
        return {name: _clip(item) for name, item in value.items()}
    return [_clip(item) for item in value] if isinstance(value, list | tuple) else value
