"""Webhooks of a project: events, formats, and the retry policy for messages that are not accepted."""

from __future__ import annotations

import enum
from dataclasses import dataclass

FIRST_WAIT, LONGEST_WAIT = 5.0, 3600.0
"""Seconds before the first retry of a message; doubles with every attempt up to the longest."""
JITTER = 0.2
"""The share of a wait by which it may be shorter or longer."""
GIVE_UP = 24 * 3600.0
"""Seconds after an event when its message is given up; each is sent at least once, however old."""
REFUSED, GIVE_UP_REFUSED = frozenset({400, 413, 415, 422}), 3600.0
"""Responses that reject this one message, and the seconds for which later messages still wait behind it."""
DISABLE = 5 * 24 * 3600.0
"""Seconds of failures in a row after which a hook is disabled."""
OVERLAP = 24 * 3600.0
"""Seconds after a rotation for which messages are signed with the old secret too."""
MOST_HOOKS = 20
"""Maximum number of hooks of one project."""
LONGEST_TEXT = 500
"""Characters of a response that are kept."""
GONE = 410


class HookEvent(enum.StrEnum):
    """Events that a hook can subscribe to, as the event feed names them."""

    STARTED = "started"
    CHECKPOINT = "checkpoint"
    INTERRUPTION_NOTICE = "interruption_notice"
    RETRYING = "retrying"
    MOVED_ON = "moved_on"
    UNREACHABLE = "unreachable"
    REACHABLE = "reachable"
    REOPENED = "reopened"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDS = (HookEvent.COMPLETED, HookEvent.FAILED, HookEvent.CANCELLED)
"""The default events of a hook."""


class HookFormat(enum.StrEnum):
    JSON = "json"
    SLACK = "slack"
    """`{"text": "…"}`, which Slack and compatible services display."""


@dataclass(frozen=True)
class Reply:
    """The receiver's reply to one attempt. `status` is None if there was no response; `text` then says why."""

    status: int | None
    text: str = ""
    retry_after: float | None = None
    """Seconds for which the receiver asked not to be called."""

    @property
    def accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class DeliveryOutcome(enum.StrEnum):
    DELIVERED = "delivered"
    FAILED = "failed"
    """The message will be sent again."""
    GIVEN_UP = "given_up"


@dataclass(frozen=True)
class FailureStreak:
    """The number of consecutive failures of a receiver, and since when."""

    failures: int = 0
    since: float | None = None


@dataclass(frozen=True)
class DeliveryVerdict:
    """The outcome of a delivery. `not_before`: when to call again. `disabled`: why the hook is now disabled, if so."""

    outcome: DeliveryOutcome
    streak: FailureStreak
    not_before: float
    disabled: str = ""

    @property
    def is_final(self) -> bool:
        return self.outcome is not DeliveryOutcome.FAILED


def judge_delivery(before: FailureStreak, reply: Reply, happened: float, now: float, jitter: float) -> DeliveryVerdict:
    """Return the verdict on a message about an event at `happened`, after this reply. `jitter` is between -1 and 1."""
    if reply.accepted:
        return DeliveryVerdict(DeliveryOutcome.DELIVERED, FailureStreak(), now)
    since = now if before.since is None else before.since
    standing = FailureStreak(before.failures + 1, since)
    wait = max(_wait(before.failures, jitter), min(reply.retry_after or 0.0, LONGEST_WAIT))
    patience = GIVE_UP_REFUSED if reply.status in REFUSED else GIVE_UP
    outcome = DeliveryOutcome.GIVEN_UP if now - happened >= patience else DeliveryOutcome.FAILED
    return DeliveryVerdict(outcome, standing, now + wait, _disabled(reply, since, now))


def _wait(failures: int, jitter: float) -> float:
    return min(FIRST_WAIT * 2.0 ** min(failures, 16), LONGEST_WAIT) * (1 + JITTER * jitter)


def _disabled(reply: Reply, since: float, now: float) -> str:
    if reply.status == GONE:
        return "The receiver answered 410 Gone."
    if now - since >= DISABLE:
        return f"No message was accepted for {DISABLE / 86400:g} days."
    return ""
