"""Named crash points, one at every boundary between a commit and an effect.

In production `crashpoint` does nothing. Tests arm a name with an action, such as killing the process, and check that
the next start recovers.
"""

from __future__ import annotations

from collections.abc import Callable

NAMES = frozenset(
    {
        "submit.before_commit",
        "submit.after_commit",
        "cancel.after_commit",
        "resume.before_commit",
        "resume.after_commit",
        "schedule.decided",
        "effect.claimed",
        "launch.before_call",
        "launch.after_call",
        "launch.recorded",
        "withdraw.before_call",
        "withdraw.after_call",
        "terminate.before_call",
        "terminate.after_call",
        "claim.after_commit",
        "ingest.before_commit",
        "ingest.after_commit",
        "log.after_put",
        "artifact.after_put",
        "checkpoint.after_put",
        "bundle.after_put",
        "secrets.key_added",
        "secrets.before_commit",
        "secrets.after_commit",
        "desired.before_answer",
        "hook.before_call",
        "hook.after_call",
    }
)

_armed: dict[str, Callable[[], None]] = {}


def crashpoint(name: str) -> None:
    """Run the armed action, if there is one. `name` is one of NAMES."""
    action = _armed.get(name)
    if action is not None:
        action()


def arm(name: str, action: Callable[[], None]) -> None:
    """Run `action` whenever `name` is reached."""
    if name not in NAMES:
        raise ValueError(f"no crash point {name!r}")
    _armed[name] = action


def disarm() -> None:
    _armed.clear()
