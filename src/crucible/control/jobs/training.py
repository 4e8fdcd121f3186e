"""Training records: a job in the words of the training routes."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.jobs import queries
from crucible.core.errors import NotFound
from crucible.core.health import SYSTEM
from crucible.core.job.spec import JobSpec
from crucible.core.job.training import read_config
from crucible.core.views.jobs import JobView, ProgressView
from crucible.core.views.training import RecordView

_SPEC = Statement(select(t.jobs.c.spec, t.jobs.c.project).where(t.jobs.c.id == bindparam("job")))


def record(conn: Connection, job: str, now: float) -> RecordView:
    """Return the job as `POST /api/v1/training` made it, with how far it is."""
    row = _SPEC.first(conn, job=job)
    if row is None:
        raise NotFound("There is no such job.", fix="`crucible jobs` lists them.")
    view = queries.read_job(conn, job, now)
    model, config = read_config(JobSpec.model_validate_json(row["spec"]))
    progress = view.progress or ProgressView()
    metrics = queries.latest_metrics(conn, job)
    return RecordView(
        job_id=job,
        user_id=view.user,
        tenant_id=row["project"],
        model_name=model,
        config=_with_checkpoint(config, view),
        status="pending" if view.phase in ("pending", "blocked") else view.status,
        phase=view.phase,
        execution_id=execution_id(view),
        executor_type=view.backend,
        current_epoch=progress.epoch,
        current_metrics={name: value for name, value in metrics.items() if not name.startswith(SYSTEM)},
        total_epochs=progress.total_epochs or _configured_epochs(config),
        progress=view.progress,
        reason=view.reason,
        waiting=view.waiting,
        cost=view.cost,
        created_at=view.created_at,
        started_at=view.started_at,
        ended_at=view.ended_at,
    )


def execution_id(view: JobView) -> str:
    """Return the id of the job's execution; before there is one, one that names the job."""
    return view.execution_id or f"{view.backend or 'local'}-{view.id}"


def _with_checkpoint(config: dict[str, object], view: JobView) -> dict[str, object]:
    """Return the config with the checkpoint that the last attempt began from."""
    begun = view.attempts[-1].resume_from if view.attempts else None
    return {**config, "resume_from": begun.id} if begun else config


def _configured_epochs(config: dict[str, object]) -> int | float | None:
    """Return the config's `epochs`, or None: of a job that was not sent as a training, they may be anything."""
    epochs = config.get("epochs")
    return epochs if isinstance(epochs, int | float) and not isinstance(epochs, bool) else None
