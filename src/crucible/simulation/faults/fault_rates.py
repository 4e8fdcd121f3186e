"""Weather: which faults there are just now. In the calm there are none."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

RATES = {
    "create.lost": 0.15,
    "create.failed": 0.08,
    "create.refused": 0.08,
    "boot.failed": 0.08,
    "terminate.failed": 0.15,
    "call.failed": 0.03,
    "call.slow": 0.03,
    "request.lost": 0.02,
    "answer.lost": 0.03,
    "request.late": 0.02,
    "request.twice": 0.05,
    "store.failed": 0.03,
    "removal.failed": 0.15,
    "notice.lost": 0.15,
}
"""How often each single fault strikes in the chaos, storms apart."""


PROVIDERS = frozenset({"create.lost", "create.failed", "create.refused", "boot.failed", "terminate.failed"})
"""A provider has bad times and good ones: these come in spells."""
SPELL_SECONDS = 300.0
FOUL, CLEAR = 2.2, 0.1
"""How much more often they strike in a bad spell than RATES says, and how much more seldom in a good one."""
LASTING = frozenset({"disk", "store"})
"""Storms that do not end with the others."""


class RandomStream:
    """Chance from a seed: every part of the world has its own, so that they do not disturb each other."""

    def __init__(self, seed: int, name: str) -> None:
        self._random = random.Random(f"{seed}:{name}")  # noqa: S311  a simulation, no secrets

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def waiting_time(self, mean: float) -> float:
        """A waiting time of this mean."""
        return self._random.expovariate(1.0 / mean)

    def choose(self, choices: Sequence[T]) -> T:
        return choices[self._random.randrange(len(choices))]

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)


class FaultRates:
    """`storms` are faults that last: a name and until when."""

    def __init__(self, dice: RandomStream, now: Callable[[], float]) -> None:
        self._dice = dice
        self._now = now
        self._storms: dict[str, float] = {}
        self._foul = dice.chance(0.5)
        self._turns_at = dice.waiting_time(SPELL_SECONDS)
        self.calm = False

    def strikes(self, fault: str) -> bool:
        if self.calm:
            return False
        often = self._spell() if fault in PROVIDERS else 1.0
        return self._dice.chance(RATES[fault] * often)

    def _spell(self) -> float:
        while self._turns_at <= self._now():
            self._foul = not self._foul
            self._turns_at += self._dice.waiting_time(SPELL_SECONDS)
        return FOUL if self._foul else CLEAR

    def storm(self, name: str, seconds: float) -> None:
        self._storms[name] = max(self._storms.get(name, 0.0), self._now() + seconds)

    def storming(self, name: str) -> bool:
        return (not self.calm or name in LASTING) and self._storms.get(name, 0.0) > self._now()

    def end(self) -> None:
        """From now on everything works; only a disk that is full stays so for a while."""
        self.calm = True
