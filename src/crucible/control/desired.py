"""The desired document of a machine: computed from the rows each time it is asked for."""

from __future__ import annotations

from sqlalchemy import Connection, RowMapping, bindparam, select

from crucible.control.db import schema as t
from crucible.core.lifecycle import MachineState, Wish
from crucible.core.resources import Allocation, Resources
from crucible.core.spec import JobSpec
from crucible.wire.desired import Assignment, DataItem, Desired, Environment, Limits
from crucible.wire.messages import derive_secret


def desired_document(conn: Connection, machine: str, key: bytes) -> Desired | None:
    """What is wanted of this machine; None when it is not wanted any more or was never ours."""
    row = conn.execute(
        select(t.machines.c.state, t.machines.c.desired_version).where(t.machines.c.id == machine)
    ).first()
    if row is None or row.state in (MachineState.RELEASING.value, MachineState.GONE.value):
        return None
    assignments = tuple(_assignment(r, key) for r in conn.execute(_ASSIGNED, {"machine": machine}).mappings())
    return Desired(machine, row.desired_version, assignments)


def attempt_wishes(conn: Connection, attempt: str) -> tuple[bool, bool] | None:
    """(stop, settled) for one attempt; None when there is no such attempt."""
    row = conn.execute(_WISHES, {"attempt": attempt}).first()
    return None if row is None else (_stop(row._mapping), row.attempt_state == "ended")


_COLUMNS = (
    t.slots.c.attempt,
    t.slots.c.rank,
    t.slots.c.allocation,
    t.attempts.c.number,
    t.attempts.c.generation.label("attempt_generation"),
    t.attempts.c.state.label("attempt_state"),
    t.jobs.c.id.label("job"),
    t.jobs.c.generation,
    t.jobs.c.desired,
    t.jobs.c.spec,
    t.jobs.c.resources,
)
_JOINED = t.slots.join(t.attempts, t.attempts.c.id == t.slots.c.attempt).join(t.jobs, t.jobs.c.id == t.attempts.c.job)


_ASSIGNED = (
    select(*_COLUMNS)
    .select_from(_JOINED)
    .where(t.slots.c.machine == bindparam("machine"), t.slots.c.ended.is_(False))
    .order_by(t.slots.c.attempt, t.slots.c.rank)
)
_WISHES = select(*_COLUMNS).select_from(_JOINED).where(t.slots.c.attempt == bindparam("attempt")).limit(1)


def _stop(row: RowMapping) -> bool:
    return bool(row["desired"] != Wish.RUN.value or row["attempt_generation"] != row["generation"])


def _assignment(row: RowMapping, key: bytes) -> Assignment:
    spec = JobSpec.model_validate_json(row["spec"])
    size = Resources.model_validate_json(row["resources"])
    allocation = Allocation.model_validate_json(row["allocation"])
    return Assignment(
        attempt=row["attempt"],
        job=row["job"],
        rank=row["rank"],
        secret=derive_secret(key, "attempt", row["attempt"]).decode(),
        command=spec.command,
        bundle=spec.bundle,
        in_place=spec.in_place,
        environment=Environment(**spec.environment.model_dump()),
        env={**spec.env, "CRUCIBLE_ATTEMPT": str(row["number"])},
        data=tuple(DataItem(item.name, item.source) for item in spec.data),
        limits=Limits(memory_bytes=size.memory_bytes, cpus=size.cpus, seconds=size.seconds, gpus=allocation.gpus),
        grace=spec.grace_seconds,
        stop=_stop(row),
    )
