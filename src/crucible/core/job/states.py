"""The states of jobs, attempts and machines, and the five public statuses of a job."""

from __future__ import annotations

import enum


class JobState(enum.StrEnum):
    PENDING = "pending"
    BLOCKED = "blocked"
    QUEUED = "queued"
    PROVISIONING = "provisioning"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in _TERMINAL


_TERMINAL = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


class DesiredState(enum.StrEnum):
    """The state that the user wants of a job."""

    RUN = "run"
    CANCEL = "cancel"


class AttemptState(enum.StrEnum):
    PLACED = "placed"
    LAUNCHING = "launching"
    STAGING = "staging"
    RUNNING = "running"
    SAVING = "saving"
    ENDED = "ended"


class MachineState(enum.StrEnum):
    INTENDED = "intended"
    CREATING = "creating"
    QUEUED = "queued"
    UP = "up"
    RELEASING = "releasing"
    GONE = "gone"


class Condition(enum.StrEnum):
    """Temporary conditions of a job, in addition to its state."""

    UNREACHABLE = "unreachable"
    OVER_BUDGET = "over_budget"
    STILL_BILLING = "still_billing"


class Status(enum.StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_STATUS = {
    JobState.PENDING: Status.QUEUED,
    JobState.BLOCKED: Status.QUEUED,
    JobState.QUEUED: Status.QUEUED,
    JobState.PROVISIONING: Status.QUEUED,
    JobState.STARTING: Status.RUNNING,
    JobState.RUNNING: Status.RUNNING,
    JobState.STOPPING: Status.RUNNING,
    JobState.COMPLETED: Status.COMPLETED,
    JobState.FAILED: Status.FAILED,
    JobState.CANCELLED: Status.CANCELLED,
}


def status_of(state: JobState) -> Status:
    """Return the public status of a state."""
    return _STATUS[state]


def states_of(status: Status) -> frozenset[JobState]:
    """Return the states that a public status stands for."""
    return frozenset(state for state, public in _STATUS.items() if public is status)
