"""Reasons for the end of an attempt. They decide the job's status, the retry, who pays, and the message."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from crucible.core.job.states import JobState


class Retry(enum.StrEnum):
    """Which retry budget the next attempt uses. NEVER: no retry.

    UNBEGUN: nothing ran, nothing is charged. REFUSAL: a backend had no machine, which may last. SUSPENSION: the
    machine reached its maximum runtime, which was known in advance. FREE: we ended the attempt ourselves; the job is
    queued again at once, and no budget is used.
    """

    NEVER = "never"
    INTERRUPTION = "interruption"
    INFRASTRUCTURE = "infrastructure"
    USER = "user"
    UNBEGUN = "unbegun"
    REFUSAL = "refusal"
    SUSPENSION = "suspension"
    FREE = "free"


class Payer(enum.StrEnum):
    USER = "user"
    PLATFORM = "platform"


@dataclass(frozen=True)
class ReasonPolicy:
    outcome: JobState
    retry: Retry
    payer: Payer
    message: str
    advice: str = ""


class Reason(enum.StrEnum):
    COMPLETED = "completed"
    EXIT_CODE = "exit_code"
    KILLED = "killed"
    OUT_OF_MEMORY = "out_of_memory"
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    STAGING_FAILED = "staging_failed"
    INTERRUPTED = "interrupted"
    SUSPENDED = "suspended"
    MACHINE_LOST = "machine_lost"
    NOT_BEGUN = "not_begun"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    STOPPED = "stopped"
    RUNNER_LOST = "runner_lost"
    LAUNCH_FAILED = "launch_failed"
    FENCED = "fenced"

    @property
    def policy(self) -> ReasonPolicy:
        return _VERDICTS[self]

    @property
    def moves_on(self) -> bool:
        """Whether the backend failed the job, so that the next attempt prefers another of the job's backends."""
        return self in _LEAVES


def _failed(retry: Retry, payer: Payer, message: str, advice: str = "") -> ReasonPolicy:
    return ReasonPolicy(JobState.FAILED, retry, payer, message, advice)


_VERDICTS = {
    Reason.COMPLETED: ReasonPolicy(JobState.COMPLETED, Retry.NEVER, Payer.USER, "The job completed."),
    Reason.CANCELLED: ReasonPolicy(JobState.CANCELLED, Retry.NEVER, Payer.USER, "The job was cancelled."),
    Reason.EXIT_CODE: _failed(
        Retry.USER,
        Payer.USER,
        "The program ended with an error.",
        "Its last lines say why: crucible logs {job}",
    ),
    Reason.KILLED: _failed(
        Retry.USER,
        Payer.USER,
        "A signal ended the program.",
        "A crash inside native code, or someone's kill command.",
    ),
    Reason.OUT_OF_MEMORY: _failed(
        Retry.NEVER,
        Payer.USER,
        "The program exceeded its memory limit and was stopped.",
        "Give it more (--memory 8G or a larger --tier), or lower its batch size.",
    ),
    Reason.TIME_LIMIT: _failed(
        Retry.NEVER,
        Payer.USER,
        "The time limit was reached and the program was stopped.",
        "Give it more time: --time 2h, or a larger --tier.",
    ),
    Reason.STAGING_FAILED: _failed(
        Retry.NEVER,
        Payer.USER,
        "The code, its environment or its data could not be prepared.",
        "The log says which step failed: crucible logs {job}",
    ),
    Reason.INTERRUPTED: _failed(Retry.INTERRUPTION, Payer.PLATFORM, "The backend reclaimed the machine."),
    Reason.SUSPENDED: _failed(
        Retry.SUSPENSION,
        Payer.USER,
        "The machine reached its maximum runtime.",
        "Save checkpoints to resume from, or set a time limit that fits: --time 2h.",
    ),
    Reason.MACHINE_LOST: _failed(
        Retry.INFRASTRUCTURE,
        Payer.PLATFORM,
        "The machine disappeared.",
        "The computer was restarted, or its agent ended.",
    ),
    Reason.NOT_BEGUN: _failed(Retry.UNBEGUN, Payer.PLATFORM, "The machine disappeared before the job started on it."),
    Reason.REFUSED: _failed(Retry.REFUSAL, Payer.PLATFORM, "The backend had no machine for the job."),
    Reason.WITHDRAWN: _failed(
        Retry.FREE, Payer.PLATFORM, "The machine waited too long in its provider's queue and was withdrawn."
    ),
    Reason.STOPPED: _failed(Retry.FREE, Payer.PLATFORM, "The attempt was stopped; the job continues in another one."),
    Reason.RUNNER_LOST: _failed(
        Retry.INFRASTRUCTURE,
        Payer.PLATFORM,
        "Crucible's runner beside the job was killed, and the job with it.",
        "Often the machine as a whole ran out of memory.",
    ),
    Reason.LAUNCH_FAILED: _failed(
        Retry.INFRASTRUCTURE,
        Payer.PLATFORM,
        "The machine could not be started.",
        "`crucible doctor` checks for the cause.",
    ),
    Reason.FENCED: _failed(
        Retry.INFRASTRUCTURE, Payer.PLATFORM, "The machine was out of contact for longer than its lease."
    ),
}

_LEAVES = frozenset({Reason.INTERRUPTED, Reason.MACHINE_LOST, Reason.LAUNCH_FAILED, Reason.FENCED, Reason.WITHDRAWN})
