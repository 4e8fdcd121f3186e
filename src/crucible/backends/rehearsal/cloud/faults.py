"""Faults that can be switched on at run time: probabilities from 0 to 1, and times in the cloud's seconds."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace


class BadFault(ValueError):
    """The fault does not exist, or its value is invalid."""


@dataclass(frozen=True)
class Faults:
    """The faults and timings of a cloud. The defaults are those of a cloud without faults."""

    lost_answers: float = 0.0
    """A create is done, but its response is a 504 or a cut connection, in turn."""
    lost_requests: float = 0.0
    """The connection of a create is cut before anything is done."""
    terminate_errors: float = 0.0
    """A terminate gets a 500 and is not done."""
    throttled: float = 0.0
    """A call gets a 429."""
    unavailable: float = 0.0
    """A call gets a 503."""
    retry_after: int = 1
    """Value of Retry-After in a 429 or 503."""
    slow: float = 0.0
    """The response to a call is late, by `slow_seconds` of the computer's time."""
    slow_seconds: float = 1.0
    list_lag: float = 0.0
    """Lists are this many seconds behind."""
    tokens_honoured: bool = True
    boot_seconds: float | None = None
    """From pending to running (default: the time of the type)."""
    shutdown_seconds: float = 0.5
    """From shutting-down to terminated."""
    reclaims_per_hour: float = 0.0
    """How often the cloud reclaims a spot instance by itself."""
    reclaim_notice: float | None = 120.0
    """How long before a reclaim it is announced; None: not at all."""

    def changed(self, values: Mapping[str, object]) -> Faults:
        """Return these faults with some values replaced. Raises BadFault."""
        known = {field.name for field in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise BadFault(f"there is no fault {name!r}; known faults: {', '.join(sorted(known))}")
            _check(name, value, getattr(Faults, name))
        return replace(self, **values)  # type: ignore[arg-type]


_CHANCES = ("lost_answers", "lost_requests", "terminate_errors", "throttled", "unavailable", "slow")
_OPTIONAL = ("boot_seconds", "reclaim_notice")


def _check(name: str, value: object, default: object) -> None:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise BadFault(f"{name} must be true or false")
    elif value is None:
        if name not in _OPTIONAL:
            raise BadFault(f"{name} must be a number")
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise BadFault(f"{name} must be a number from 0")
    elif name in _CHANCES and value > 1:
        raise BadFault(f"{name} must be a probability from 0 to 1")


class SeededChance:
    """A seeded source of chance: the same calls in the same order give the same results."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a simulation, no secrets

    def happens(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance
