"""Submit a job: a valid spec becomes a durable job, in one commit with its placement if a slot is free."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement, insert_row
from crucible.control.jobs.queries import find_job
from crucible.control.jobs.queue_limit import QueueLimit
from crucible.control.objects import checkpoints
from crucible.control.objects.bundles import may_use
from crucible.control.people import audit, projects
from crucible.control.planning import forecast
from crucible.control.reconcile.crashpoints import crashpoint
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.runtime.ports import Ids
from crucible.control.scheduling.admission import Admission
from crucible.control.scheduling.backend_access import BackendAccess
from crucible.control.scheduling.scheduler import Scheduler
from crucible.control.secrets import Vault
from crucible.core.errors import BadInput, Conflict, NotFound
from crucible.core.ids import Prefix
from crucible.core.job.spec import JobSpec
from crucible.core.job.tags import parse_tags
from crucible.core.lifecycle import Job
from crucible.core.lifecycle.advance import new_job
from crucible.core.people.identity import DEFAULT_PROJECT, OWNER, Identity, Permission
from crucible.core.scheduling.candidates import list_candidates

_KEY = Statement(select(t.idempotency).where(t.idempotency.c.key == bindparam("name")))
_KEEP_KEY = Statement(insert_row(t.idempotency, ["key", "request", "job", "created_at"]))


@dataclass(frozen=True)
class StoredJob:
    job: str
    created: bool


class Submitter:
    def __init__(
        self,
        access: BackendAccess,
        admission: Admission,
        scheduler: Scheduler,
        ids: Ids,
        vault: Vault,
        *,
        queue_limit: QueueLimit,
        most_nodes: int = 1,
    ) -> None:
        """`most_nodes`: the largest number of machines that a job may ask for."""
        self.access = access
        self._admission = admission
        self._scheduler = scheduler
        self._ids = ids
        self._vault = vault
        self.queue_limit = queue_limit
        self._most_nodes = most_nodes

    def store(
        self, unit: UnitOfWork, spec: JobSpec, key: str | None, who: Identity = OWNER, *, rerun: bool = False
    ) -> StoredJob:
        """Store the job, once for each idempotency key of a project.

        Raises before anything is stored if the spec cannot be run, or not by this user. `rerun`: the spec is that of
        an earlier job, so its code may be used whoever uploaded it.
        """
        request = hashlib.sha256(spec.model_dump_json().encode()).hexdigest()
        project = self._project(unit, spec, who)
        key = None if key is None else scoped_key(project, key)
        known = self._find_by_key(unit, key, request)
        if known is not None:
            return StoredJob(known, created=False)
        self._require_nodes(spec)
        self.queue_limit.check(unit.conn, who.name)
        size = self._admission.check(spec)
        parse_tags(spec.tags)
        self._vault.require(unit.conn, project, spec.secrets.values())
        if spec.resume_from is not None:
            named = checkpoints.resolve_checkpoint(unit.conn, spec.resume_from, who)
            spec = spec.model_copy(update={"resume_from": named})
        if not rerun:
            self._require_bundle(unit, spec, who)
            if spec.rerun_of is not None:
                spec = spec.model_copy(update={"rerun_of": _find_original(unit, spec.rerun_of, project, who)})
        candidates = list_candidates(spec)
        job = Job(
            self._ids.new(Prefix.JOB),
            spec,
            size,
            unit.now,
            project=project,
            user=who.name,
            backend=candidates[0].backend,
            candidates=candidates,
        )
        unit.create(new_job(job))
        forecast.request_plan(unit.conn, job.id, unit.now)
        audit.record_job(unit.conn, who, "job.submit", job, unit.now)
        if key is not None:
            _KEEP_KEY.run(unit.conn, key=key, request=request, job=job.id, created_at=unit.now)
        self._scheduler.place_at_once(unit, job.id)
        crashpoint("submit.before_commit")
        return StoredJob(job.id, created=True)

    def check_room(self, unit: UnitOfWork, jobs: Iterable[tuple[JobSpec, str | None]], who: Identity) -> None:
        """Raise QueueFull unless all of these jobs may be queued. Those that their keys created before need no room."""
        keys = [None if key is None else scoped_key(spec.project or who.default_project, key) for spec, key in jobs]
        new = [key for key in set(keys) if key is not None and _KEY.first(unit.conn, name=key) is None]
        self.queue_limit.check(unit.conn, who.name, keys.count(None) + len(new))

    def _find_by_key(self, unit: UnitOfWork, key: str | None, request: str) -> str | None:
        if key is None:
            return None
        row = _KEY.first(unit.conn, name=key)
        if row is None:
            return None
        if row["request"] != request:
            raise Conflict(
                "This Idempotency-Key was used for another job.",
                fix="Use a new key for a new job.",
                job=row["job"],
            )
        return str(row["job"])

    def _project(self, unit: UnitOfWork, spec: JobSpec, who: Identity) -> str:
        """Return the project of the job. Raises unless the user may submit jobs to it and to the job's backends."""
        project = spec.project or who.default_project
        if not who.may(Permission.READ, project) or not projects.exists(unit.conn, project):
            raise projects.not_found(project)
        who.require(Permission.WRITE, project)
        for name in spec.backends:
            self.access.require(name, who, project)
        return project

    def _require_nodes(self, spec: JobSpec) -> None:
        if spec.nodes > self._most_nodes:
            raise BadInput(
                f"Jobs on several machines are not supported yet: this one asks for {spec.nodes}.",
                why="This version has no backend that connects machines to a cluster.",
                fix="Leave `nodes` out, and choose a machine with more GPUs: --gpus N.",
                field="nodes",
            )

    def _require_bundle(self, unit: UnitOfWork, spec: JobSpec, who: Identity) -> None:
        if spec.bundle is not None and not may_use(unit.conn, spec.bundle, who):
            raise BadInput(
                "The job's bundle has not been uploaded.",
                fix=f"PUT it to /api/v1/bundles/{spec.bundle} first.",
            )


def _find_original(unit: UnitOfWork, ref: str, project: str, who: Identity) -> str:
    """Return the id of the job that this one says to repeat. Raises NotFound unless it is one of the same project."""
    found = find_job(unit.conn, ref, who)
    if found.project != project:
        raise NotFound(
            f"There is no job {ref!r} in the project {project!r}.",
            why="`rerun_of` names a job of the same project.",
            fix="Leave `rerun_of` out, or submit to the project of that job.",
        )
    return found.id


def scoped_key(project: str, key: str) -> str:
    """Return the idempotency key as it is stored, so that two projects can use the same one independently."""
    if project == DEFAULT_PROJECT:
        return key
    return f"in:{hashlib.sha256(f'{project} {key}'.encode()).hexdigest()}"
