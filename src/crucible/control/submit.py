"""Submit: a checked spec becomes a durable job, in one commit with its placement when a slot is free."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy import bindparam, select

from crucible.control import checkpoints
from crucible.control.crashpoints import crashpoint
from crucible.control.db import schema as t
from crucible.control.db.statement import Statement, inserting
from crucible.control.places import Places
from crucible.control.ports import Ids
from crucible.control.scheduler import Scheduler
from crucible.control.unit import Unit
from crucible.core.errors import BadInput, Conflict
from crucible.core.ids import Prefix
from crucible.core.lifecycle import Job
from crucible.core.lifecycle.advance import new_job
from crucible.core.places import places_of
from crucible.core.spec import JobSpec
from crucible.core.tags import parse_tags

_KEY = Statement(select(t.idempotency).where(t.idempotency.c.key == bindparam("name")))
_KEEP_KEY = Statement(inserting(t.idempotency, ["key", "request", "job", "created_at"]))


@dataclass(frozen=True)
class Accepted:
    job: str
    created: bool


class Submit:
    def __init__(self, places: Places, scheduler: Scheduler, ids: Ids) -> None:
        self._places = places
        self._scheduler = scheduler
        self._ids = ids

    def store(self, unit: Unit, spec: JobSpec, key: str | None) -> Accepted:
        """Stores the job once per idempotency key.

        Raises before anything is stored if the spec cannot be run.
        """
        request = hashlib.sha256(spec.model_dump_json().encode()).hexdigest()
        known = self._known(unit, key, request)
        if known is not None:
            return Accepted(known, created=False)
        size = self._places.check(spec)
        parse_tags(spec.tags)
        if spec.resume_from is not None:
            spec = spec.model_copy(update={"resume_from": checkpoints.named(unit.conn, spec.resume_from)})
        self._need_bundle(unit, spec)
        first = places_of(spec)[0]
        job = Job(self._ids.new(Prefix.JOB), spec, size, created_at=unit.now, backend=first)
        unit.create(new_job(job))
        if key is not None:
            _KEEP_KEY.run(unit.conn, key=key, request=request, job=job.id, created_at=unit.now)
        self._scheduler.place(unit)
        crashpoint("submit.before_commit")
        return Accepted(job.id, created=True)

    def _known(self, unit: Unit, key: str | None, request: str) -> str | None:
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

    def _need_bundle(self, unit: Unit, spec: JobSpec) -> None:
        if spec.bundle is None:
            return
        known = select(t.bundles.c.sha256).where(t.bundles.c.sha256 == spec.bundle)
        if unit.conn.execute(known).first() is None:
            raise BadInput(
                "The job's bundle has not been uploaded.",
                fix=f"PUT it to /api/v1/bundles/{spec.bundle} first.",
            )
