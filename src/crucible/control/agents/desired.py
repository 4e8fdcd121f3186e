"""Compute the desired document of a machine from the rows."""

from __future__ import annotations

import zlib

from sqlalchemy import Connection, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement
from crucible.control.objects import checkpoints
from crucible.control.reconcile import codec
from crucible.control.upkeep import restore_hold
from crucible.core.job.spec import JobSpec
from crucible.core.lifecycle import AttemptState, DesiredState, MachineState
from crucible.core.views.agents import DesiredAttemptView
from crucible.wire.documents.desired import Assignment, DataItem, Desired, Environment, Limits
from crucible.wire.documents.messages import derive_secret


def desired_document(conn: Connection, machine: str, key: bytes, now: float) -> Desired | None:
    """Return what is wanted of this machine; None if it is no longer wanted or was never ours."""
    restore_hold.refuse_for_old_machine(conn, machine)
    row = _MACHINE.first(conn, machine=machine)
    if row is None or row["state"] in (MachineState.RELEASING.value, MachineState.GONE.value):
        return None
    assignments = tuple(_assignment(conn, r, key) for r in _ASSIGNED.all(conn, machine=machine))
    left = None if row["ends_at"] is None else max(row["ends_at"] - now, 0.0)
    return Desired(machine, row["desired_version"], assignments, row["lease_seconds"], left)


def attempt_desired(conn: Connection, attempt: str) -> DesiredAttemptView | None:
    """Return what is wanted of one attempt; None if there is no such attempt."""
    row = _ATTEMPT.first(conn, attempt=attempt)
    if row is None:
        restore_hold.refuse_while_held(conn)
        return None
    ended = row["attempt_state"] == AttemptState.ENDED.value
    return DesiredAttemptView(stop=_should_stop(row), settled=ended, checkpoint=row["checkpoint"])


_MACHINE = Statement(
    select(t.machines.c.state, t.machines.c.desired_version, t.machines.c.lease_seconds, t.machines.c.ends_at).where(
        t.machines.c.id == bindparam("machine")
    )
)


_COLUMNS = (
    t.slots.c.attempt,
    t.slots.c.rank,
    t.slots.c.allocation,
    t.attempts.c.number,
    t.attempts.c.generation.label("attempt_generation"),
    t.attempts.c.state.label("attempt_state"),
    t.attempts.c.stopping_since,
    t.attempts.c.resume_from,
    t.jobs.c.id.label("job"),
    t.jobs.c.generation,
    t.jobs.c.desired,
    t.jobs.c.checkpoint,
    t.jobs.c.spec,
    t.jobs.c.resources,
)
_JOINED = t.slots.join(t.attempts, t.attempts.c.id == t.slots.c.attempt).join(t.jobs, t.jobs.c.id == t.attempts.c.job)


_ASSIGNED = Statement(
    select(*_COLUMNS)
    .select_from(_JOINED)
    .where(t.slots.c.machine == bindparam("machine"), t.slots.c.ended.is_(False))
    .order_by(t.slots.c.attempt, t.slots.c.rank)
)
_ATTEMPT = Statement(select(*_COLUMNS).select_from(_JOINED).where(t.slots.c.attempt == bindparam("attempt")).limit(1))


def _should_stop(row: Row) -> bool:
    outdated = row["attempt_generation"] != row["generation"]
    return bool(row["desired"] != DesiredState.RUN.value or outdated or row["stopping_since"] is not None)


def job_seed(job: str, spec: JobSpec) -> int:
    """Return the job's seed: the one in its spec, or one derived from its id, the same for all attempts."""
    return zlib.crc32(job.encode()) if spec.seed is None else spec.seed


def _assignment(conn: Connection, row: Row, key: bytes) -> Assignment:
    spec, size = codec.parse_spec(row["spec"]), codec.parse_resources(row["resources"])
    allocation = codec.parse_allocation(row["allocation"])
    return Assignment(
        attempt=row["attempt"],
        job=row["job"],
        rank=row["rank"],
        secret=derive_secret(key, "attempt", row["attempt"]).decode(),
        command=spec.command,
        bundle=spec.bundle,
        in_place=spec.in_place,
        environment=Environment(**spec.environment.model_dump()),
        env={
            **spec.env,
            "CRUCIBLE_ATTEMPT": str(row["number"]),
            "CRUCIBLE_KIND": spec.kind.value,
            "CRUCIBLE_SEED": str(job_seed(row["job"], spec)),
        },
        data=tuple(DataItem(item.name, item.source) for item in spec.data),
        limits=Limits(
            memory_bytes=size.memory_bytes,
            cpus=size.cpus,
            seconds=min((given for given in (size.seconds, allocation.seconds) if given is not None), default=None),
            gpus=allocation.gpus,
        ),
        grace=spec.grace_seconds,
        resume_from=checkpoints.load_resume(conn, row["resume_from"]) if row["resume_from"] else None,
        stop=_should_stop(row),
        checkpoint=row["checkpoint"],
        secrets=tuple(sorted(spec.secrets)),
        outputs=spec.outputs,
        workdir=spec.workdir,
    )
