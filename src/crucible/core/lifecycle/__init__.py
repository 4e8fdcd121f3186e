"""The lifecycle of jobs, attempts and machines: pure transitions over frozen values."""

from crucible.core.job.states import AttemptState, DesiredState, JobState, MachineState, Status, status_of
from crucible.core.lifecycle.advance import advance, new_job
from crucible.core.lifecycle.facts import Fact
from crucible.core.lifecycle.machines import advance_machine
from crucible.core.lifecycle.reasons import Reason
from crucible.core.lifecycle.values import Attempt, Effect, EffectKind, Event, Job, Machine, Slot, Step, World

__all__ = [
    "Attempt",
    "AttemptState",
    "DesiredState",
    "Effect",
    "EffectKind",
    "Event",
    "Fact",
    "Job",
    "JobState",
    "Machine",
    "MachineState",
    "Reason",
    "Slot",
    "Status",
    "Step",
    "World",
    "advance",
    "advance_machine",
    "new_job",
    "status_of",
]
