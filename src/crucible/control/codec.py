"""Rows to values and back. The only place that knows how a value lies in its columns."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import RowMapping

from crucible.core.lifecycle import (
    Attempt,
    AttemptState,
    Job,
    JobState,
    Machine,
    MachineState,
    Reason,
    Slot,
    Wish,
)
from crucible.core.lifecycle.reasons import Retry
from crucible.core.lifecycle.states import Condition
from crucible.core.offers import Billing, Market
from crucible.core.resources import Allocation, Capacity, Resources
from crucible.core.spec import JobSpec

_JOB_PLAIN = (
    "id",
    "project",
    "generation",
    "detail",
    "waiting",
    "placement",
    "attempts",
    "events",
    "exit_code",
    "signal",
    "created_at",
    "started_at",
    "ended_at",
    "not_before",
    "due_at",
    "backend",
    "resume_from",
    "reopened_at",
    "checkpoint",
)
_ATTEMPT_PLAIN = (
    "id",
    "job",
    "number",
    "generation",
    "backend",
    "detail",
    "exit_code",
    "signal",
    "pid",
    "placed_at",
    "started_at",
    "exited_at",
    "ended_at",
    "last_seen",
    "resume_from",
    "noticed_at",
)
_MACHINE_PLAIN = (
    "id",
    "backend",
    "owner",
    "call",
    "rate",
    "bills",
    "instance_type",
    "region",
    "simulated",
    "lease_seconds",
    "host_due",
    "native_id",
    "claimed_by",
    "launch_settled",
    "launch_deadline",
    "empty_finds",
    "settle_window",
    "gone_sightings",
    "gone_since",
    "interrupted",
    "detail",
    "created_at",
    "up_at",
    "gone_at",
    "ends_at",
    "last_seen",
)


def job_of(row: RowMapping) -> Job:
    plain: dict[str, Any] = {name: row[name] for name in _JOB_PLAIN}
    return Job(
        **plain,
        version=row["version"],
        spec=JobSpec.model_validate_json(row["spec"]),
        resources=Resources.model_validate_json(row["resources"]),
        state=JobState(row["state"]),
        desired=Wish(row["desired"]),
        reason=Reason(row["reason"]) if row["reason"] else None,
        conditions=frozenset(Condition(c) for c in json.loads(row["conditions"])),
        used={Retry(name): count for name, count in json.loads(row["used"]).items()},
    )


def job_changes(job: Job) -> dict[str, object]:
    """The columns that may differ from one version to the next."""
    return {
        **{name: getattr(job, name) for name in _JOB_PLAIN},
        "state": job.state.value,
        "desired": job.desired.value,
        "reason": job.reason.value if job.reason else None,
        "conditions": json.dumps(sorted(c.value for c in job.conditions)),
        "used": json.dumps({retry.value: count for retry, count in job.used.items()}),
    }


def job_row(job: Job) -> dict[str, object]:
    return {
        **job_changes(job),
        "backwards": job.id[::-1],
        "version": job.version,
        "spec": job.spec.model_dump_json(),
        "resources": job.resources.model_dump_json(exclude_unset=True),
    }


def attempt_of(row: RowMapping, slot_rows: list[RowMapping]) -> Attempt:
    plain: dict[str, Any] = {name: row[name] for name in _ATTEMPT_PLAIN}
    return Attempt(
        **plain,
        slots=tuple(slot_of(r) for r in slot_rows),
        state=AttemptState(row["state"]),
        reason=Reason(row["reason"]) if row["reason"] else None,
    )


def attempt_row(attempt: Attempt) -> dict[str, object]:
    return {
        **{name: getattr(attempt, name) for name in _ATTEMPT_PLAIN},
        "state": attempt.state.value,
        "reason": attempt.reason.value if attempt.reason else None,
    }


def slot_of(row: RowMapping) -> Slot:
    return Slot(row["rank"], row["machine"], Allocation.model_validate_json(row["allocation"]), bool(row["ended"]))


def slot_row(attempt: str, slot: Slot) -> dict[str, object]:
    return {
        "attempt": attempt,
        "rank": slot.rank,
        "machine": slot.machine,
        "allocation": slot.allocation.model_dump_json(),
        "ended": slot.ended,
    }


def machine_of(row: RowMapping) -> Machine:
    plain: dict[str, Any] = {name: row[name] for name in _MACHINE_PLAIN}
    return Machine(
        **plain,
        version=row["version"],
        state=MachineState(row["state"]),
        market=Market(row["market"]),
        billing=Billing(**json.loads(row["billing"])),
        capacity=Capacity.model_validate_json(row["capacity"]),
    )


def machine_row(machine: Machine) -> dict[str, object]:
    return {
        **{name: getattr(machine, name) for name in _MACHINE_PLAIN},
        "version": machine.version,
        "state": machine.state.value,
        "market": machine.market.value,
        "billing": json.dumps({"granularity": machine.billing.granularity, "minimum": machine.billing.minimum}),
        "capacity": machine.capacity.model_dump_json(),
    }
