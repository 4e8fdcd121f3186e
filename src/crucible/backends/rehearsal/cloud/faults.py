"""What goes wrong, on demand: chances of 0..1 and times in the cloud's seconds, changeable at run time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace


class BadFault(ValueError):
    """No such fault, or no such value of it."""


@dataclass(frozen=True)
class Faults:
    lost_answers: float = 0.0
    """A create is done, then it is answered 504 or its connection is cut, by turns."""
    lost_requests: float = 0.0
    """A create is cut off before anything is done."""
    terminate_errors: float = 0.0
    """A terminate is answered 500 and not done."""
    throttled: float = 0.0
    """A call is answered 429."""
    unavailable: float = 0.0
    """A call is answered 503."""
    retry_after: int = 1
    """What a 429 or 503 asks for."""
    slow: float = 0.0
    """A call is answered late, by `slow_seconds` of the computer's time."""
    slow_seconds: float = 1.0
    list_lag: float = 0.0
    """Lists show what was true so long ago."""
    tokens_honoured: bool = True
    boot_seconds: float | None = None
    """From pending to running; None: what the type needs."""
    shutdown_seconds: float = 0.5
    """From shutting-down to terminated."""
    reclaims_per_hour: float = 0.0
    """How often the cloud takes a spot instance back by itself."""
    reclaim_notice: float | None = 120.0
    """How long before it says so; None: not at all."""

    def changed(self, values: Mapping[str, object]) -> Faults:
        """These faults with those values. Raises BadFault."""
        known = {field.name for field in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise BadFault(f"there is no fault {name!r}; there are: {', '.join(sorted(known))}")
            _check(name, value, getattr(Faults, name))
        return replace(self, **values)  # type: ignore[arg-type]


_CHANCES = ("lost_answers", "lost_requests", "terminate_errors", "throttled", "unavailable", "slow")
_OPTIONAL = ("boot_seconds", "reclaim_notice")


def _check(name: str, value: object, default: object) -> None:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise BadFault(f"{name} is true or false")
    elif value is None:
        if name not in _OPTIONAL:
            raise BadFault(f"{name} is a number")
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise BadFault(f"{name} is a number from 0")
    elif name in _CHANCES and value > 1:
        raise BadFault(f"{name} is a chance from 0 to 1")


class SeededChance:
    """Seeded: the same calls in the same order meet the same luck."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - luck, not secrets

    def happens(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance
