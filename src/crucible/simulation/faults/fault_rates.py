"""How often faults strike, and the random numbers that decide it. In the calm phase there are none."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

RATES = {
    "create.lost": 0.15,
    "create.failed": 0.08,
    "create.refused": 0.08,
    "create.partial": 0.2,
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
"""Probability of each single fault during the chaos phase; storms come on top."""


PROVIDERS = frozenset(
    {"create.lost", "create.failed", "create.refused", "create.partial", "boot.failed", "terminate.failed"}
)
"""Faults of a provider: they come in bad spells, with good ones between."""
SPELL_SECONDS = 300.0
BAD_SPELL, GOOD_SPELL = 2.2, 0.1
"""Factors on RATES in a bad and in a good spell."""
LASTING = frozenset({"disk", "store"})
"""Storms that outlast the end of the chaos phase."""


class RandomStream:
    """Random numbers from a seed and a name. Each part of the world has its own, so that one cannot shift another's."""

    def __init__(self, seed: int, name: str) -> None:
        self._random = random.Random(f"{seed}:{name}")  # noqa: S311  a simulation, no secrets

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def waiting_time(self, mean: float) -> float:
        """Return an exponentially distributed waiting time with this mean."""
        return self._random.expovariate(1.0 / mean)

    def choose(self, choices: Sequence[T]) -> T:
        return choices[self._random.randrange(len(choices))]

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)


class FaultRates:
    """Decides which faults strike. A storm is a fault that lasts: it has a name and an end."""

    def __init__(self, rng: RandomStream, now: Callable[[], float]) -> None:
        self._rng = rng
        self._now = now
        self._storms: dict[str, float] = {}
        self._bad_spell = rng.chance(0.5)
        self._turns_at = rng.waiting_time(SPELL_SECONDS)
        self.calm = False

    def strikes(self, fault: str) -> bool:
        """Return whether this fault happens now. Each call draws a random number."""
        if self.calm:
            return False
        factor = self._spell_factor() if fault in PROVIDERS else 1.0
        return self._rng.chance(RATES[fault] * factor)

    def _spell_factor(self) -> float:
        while self._turns_at <= self._now():
            self._bad_spell = not self._bad_spell
            self._turns_at += self._rng.waiting_time(SPELL_SECONDS)
        return BAD_SPELL if self._bad_spell else GOOD_SPELL

    def storm(self, name: str, seconds: float) -> None:
        self._storms[name] = max(self._storms.get(name, 0.0), self._now() + seconds)

    def storming(self, name: str) -> bool:
        return (not self.calm or name in LASTING) and self._storms.get(name, 0.0) > self._now()

    def end(self) -> None:
        """Begin the calm phase: no fault strikes any more; only storms in LASTING run to their end."""
        self.calm = True
