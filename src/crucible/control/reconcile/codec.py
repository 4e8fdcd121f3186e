"""Convert rows to values and back. Only this module knows which column holds which field."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from crucible.control.db.statement import Row
from crucible.control.scheduling.queue import queue_name
from crucible.core.compute.offers import Billing, Market
from crucible.core.compute.resources import Allocation, Capacity, Resources
from crucible.core.job.spec import JobSpec
from crucible.core.job.states import Condition
from crucible.core.lifecycle import (
    Attempt,
    AttemptState,
    DesiredState,
    Job,
    JobState,
    Machine,
    MachineState,
    Reason,
    Slot,
)
from crucible.core.lifecycle.reasons import Retry
from crucible.core.scheduling.candidates import Candidate, backends_of, list_candidates

_JOB_PLAIN = (
    "project",
    "user",
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
    "checkpoint",
)
_ATTEMPT_PLAIN = (
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
    "stopping_since",
)
_MACHINE_PLAIN = (
    "backend",
    "owner",
    "call",
    "rate",
    "bills",
    "instance_type",
    "region",
    "node",
    "gang",
    "simulated",
    "lease_seconds",
    "host_due",
    "host_seconds",
    "life_seconds",
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
    "launched_at",
    "queued_at",
    "started_at",
    "up_at",
    "gone_at",
    "ends_at",
    "last_seen",
    "withdrawing",
)
JOB_CHANGES = (*_JOB_PLAIN, "candidates", "queue", "reopened_at", "state", "desired", "reason", "conditions", "used")
"""The columns of a job that may change. Without its id: writing it would make the database check all references."""
JOB_COLUMNS = ("id", *JOB_CHANGES, "backwards", "version", "spec", "resources", "priority")
ATTEMPT_CHANGES = (*_ATTEMPT_PLAIN, "state", "reason")
ATTEMPT_COLUMNS = ("id", "job", *ATTEMPT_CHANGES)
SLOT_COLUMNS = ("attempt", "rank", "machine", "allocation", "ended", "reason")
MACHINE_CHANGES = (*_MACHINE_PLAIN, "version", "state", "market", "billing", "capacity")
MACHINE_COLUMNS = ("id", *MACHINE_CHANGES)

# Many rows hold the same text, and parsed values are frozen, so they can be shared.
parse_spec = lru_cache(256)(JobSpec.model_validate_json)
parse_resources = lru_cache(256)(Resources.model_validate_json)
parse_allocation = lru_cache(256)(Allocation.model_validate_json)
_capacity = lru_cache(64)(Capacity.model_validate_json)


@lru_cache(64)
def _billing(text: str) -> Billing:
    return Billing(**json.loads(text))


@lru_cache(64)
def _candidates(text: str) -> tuple[Candidate, ...]:
    """Return the stored candidates; none for a job that was stored before there were any."""
    return tuple(Candidate(backend, Market(market)) for backend, market in json.loads(text))


def job_from_row(row: Row) -> Job:
    plain: dict[str, Any] = {name: row[name] for name in _JOB_PLAIN}
    return Job(
        id=row["id"],
        **plain,
        attempts_before_reopen=row["reopened_at"],
        candidates=_candidates(row["candidates"]) or list_candidates(parse_spec(row["spec"])),
        version=row["version"],
        spec=parse_spec(row["spec"]),
        resources=parse_resources(row["resources"]),
        state=JobState(row["state"]),
        desired=DesiredState(row["desired"]),
        reason=Reason(row["reason"]) if row["reason"] else None,
        conditions=frozenset(Condition(c) for c in json.loads(row["conditions"])),
        used={Retry(name): count for name, count in json.loads(row["used"]).items()},
    )


def job_changes(job: Job) -> dict[str, object]:
    return {
        **{name: getattr(job, name) for name in _JOB_PLAIN},
        "candidates": json.dumps([[one.backend, one.market.value] for one in job.candidates]),
        "queue": queue_name(backends_of(job.candidates)),
        "reopened_at": job.attempts_before_reopen,
        "state": job.state.value,
        "desired": job.desired.value,
        "reason": job.reason.value if job.reason else None,
        "conditions": json.dumps(sorted(c.value for c in job.conditions)),
        "used": json.dumps({retry.value: count for retry, count in job.used.items()}),
    }


def job_row(job: Job) -> dict[str, object]:
    return {
        "id": job.id,
        **job_changes(job),
        "backwards": job.id[::-1],
        "version": job.version,
        "spec": job.spec.model_dump_json(),
        "resources": job.resources.model_dump_json(exclude_unset=True),
        "priority": job.spec.priority,
    }


def attempt_from_row(row: Row, slot_rows: list[Row]) -> Attempt:
    plain: dict[str, Any] = {name: row[name] for name in _ATTEMPT_PLAIN}
    return Attempt(
        id=row["id"],
        job=row["job"],
        **plain,
        slots=tuple(slot_from_row(r) for r in slot_rows),
        state=AttemptState(row["state"]),
        reason=Reason(row["reason"]) if row["reason"] else None,
    )


def attempt_row(attempt: Attempt) -> dict[str, object]:
    return {"id": attempt.id, "job": attempt.job, **attempt_changes(attempt)}


def attempt_changes(attempt: Attempt) -> dict[str, object]:
    return {
        **{name: getattr(attempt, name) for name in _ATTEMPT_PLAIN},
        "state": attempt.state.value,
        "reason": attempt.reason.value if attempt.reason else None,
    }


def slot_from_row(row: Row) -> Slot:
    reason = Reason(row["reason"]) if row["reason"] else None
    return Slot(row["rank"], row["machine"], parse_allocation(row["allocation"]), bool(row["ended"]), reason)


def slot_row(attempt: str, slot: Slot) -> dict[str, object]:
    return {
        "attempt": attempt,
        "rank": slot.rank,
        "machine": slot.machine,
        "allocation": slot.allocation.model_dump_json(),
        "ended": slot.ended,
        "reason": slot.reason.value if slot.reason else None,
    }


def machine_from_row(row: Row) -> Machine:
    plain: dict[str, Any] = {name: row[name] for name in _MACHINE_PLAIN}
    return Machine(
        id=row["id"],
        **plain,
        version=row["version"],
        state=MachineState(row["state"]),
        market=Market(row["market"]),
        billing=_billing(row["billing"]),
        capacity=_capacity(row["capacity"]),
    )


def machine_row(machine: Machine) -> dict[str, object]:
    return {"id": machine.id, **machine_changes(machine)}


def machine_changes(machine: Machine) -> dict[str, object]:
    return {
        **{name: getattr(machine, name) for name in _MACHINE_PLAIN},
        "version": machine.version,
        "state": machine.state.value,
        "market": machine.market.value,
        "billing": json.dumps({"granularity": machine.billing.granularity, "minimum": machine.billing.minimum}),
        "capacity": machine.capacity.model_dump_json(),
    }
