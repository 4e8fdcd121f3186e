"""Training records: a job in the words of the training routes."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, select

from crucible.control import queries
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.views import View
from crucible.core.errors import NotFound
from crucible.core.health import SYSTEM
from crucible.core.spec import JobSpec
from crucible.core.training import recorded

_SPEC = Statement(select(t.jobs.c.spec, t.jobs.c.project).where(t.jobs.c.id == bindparam("job")))


def record(conn: Connection, job: str, now: float) -> View:
    """The job as `POST /api/v1/training` made it, with how far it is."""
    row = _SPEC.first(conn, job=job)
    if row is None:
        raise NotFound("There is no such job.", fix="`crucible jobs` lists them.")
    view = queries.one_job(conn, job, now)
    model, config = recorded(JobSpec.model_validate_json(row["spec"]))
    progress = _mapping(view["progress"])
    metrics = queries.latest_metrics(conn, job)
    return {
        "job_id": job,
        "user_id": view["user"],
        "tenant_id": row["project"],
        "model_name": model,
        "config": _went_on(config, view),
        "status": "pending" if view["phase"] in ("pending", "blocked") else view["status"],
        "phase": view["phase"],
        "execution_id": view["execution_id"] or f"{view['backend']}-{job}",
        "executor_type": view["backend"],
        "current_epoch": progress.get("epoch"),
        "current_metrics": {name: value for name, value in metrics.items() if not name.startswith(SYSTEM)},
        "total_epochs": progress.get("total_epochs") or config.get("epochs"),
        "progress": view["progress"],
        "reason": view["reason"],
        "waiting": view["waiting"],
        "cost": view["cost"],
        "created_at": view["created_at"],
        "started_at": view["started_at"],
        "ended_at": view["ended_at"],
    }


def _went_on(config: Mapping[str, object], view: View) -> View:
    """The config, with the checkpoint that the last attempt began from."""
    attempts = view["attempts"]
    last = attempts[-1] if isinstance(attempts, list) and attempts else {}
    begun = _mapping(last.get("resume_from")).get("id")
    return {**config, "resume_from": begun} if begun else dict(config)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
