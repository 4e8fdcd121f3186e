"""Curves that jobs draw: those that do well, and those in each kind of trouble."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from crucible.core.health import HealthInputs, Part, Point, Stage

EVERY = 5.0
"""Seconds between two points."""


def part(values: Sequence[float | None], *, first: float = 0.0, every: float = EVERY, at: float = 1000.0) -> Part:
    return tuple(Point(first + n, value, at + n * every) for n, value in enumerate(values))


def signs(series: dict[str, Part], stage: Stage = Stage.RUNNING, **more: object) -> HealthInputs:
    """A job with these series, whose machine was sampled until the last report."""
    end = max((points[-1].at for points in series.values() if points), default=1000.0)
    cpu = tuple(Point(n, 95.0, end - 600 + 5 * n) for n in range(121))
    given: dict[str, object] = {"fraction": None, "ran_seconds": 3600.0, "quiet_seconds": 1.0, **more}
    parts = {name: (points,) for name, points in series.items()}
    return HealthInputs(stage, {**parts, "system.cpu_percent": (cpu,)}, **given)  # type: ignore[arg-type]


def noisy(shape: Callable[[float], float], count: int, spread: float, random: Random) -> list[float]:
    """`shape` over 0..1, each point off by a part of the way it goes."""
    return [shape(n / max(count - 1, 1)) + random.gauss(0, spread) for n in range(count)]


def converging(random: Random) -> list[float]:
    """An ordinary loss: it falls fast, then slowly, with noise and spikes, at times as a running mean."""
    count = random.choice([8, 20, 40, 75, 150, 400, 1000])
    start, floor = random.uniform(0.5, 12), random.uniform(0.0, 0.4)
    fall = start * (1 - floor)
    pace = random.uniform(1.0, 5.0)
    power = random.uniform(0.2, 0.8)
    shapes = (
        lambda x: start - fall + fall * math.exp(-pace * x),
        lambda x: start - fall + fall * (1 + 30 * x) ** -power,
        lambda x: start - 0.8 * fall * x,
    )
    values = noisy(random.choice(shapes), count, random.choice([0.0, 0.01, 0.05, 0.15]) * fall, random)
    _spikes(values, fall, random)
    if random.random() < 0.2:
        values = _running_mean(values)
    return [max(value, 1e-4) for value in values]


def _spikes(values: list[float], fall: float, random: Random) -> None:
    for _ in range(random.choice([0, 0, 1, 3])):
        values[random.randrange(len(values))] += random.uniform(0.2, 3) * fall


def _running_mean(values: Sequence[float]) -> list[float]:
    mean, found = values[0], []
    for value in values:
        mean = 0.9 * mean + 0.1 * value
        found.append(mean)
    return found


def diverging(random: Random) -> list[float]:
    """A loss that falls for a while and then rises for good, slowly or in a burst."""
    count = random.choice([40, 75, 150, 400, 1000])
    start = random.uniform(1, 10)
    turn = random.uniform(0.1, 0.7)
    height = random.uniform(0.8, 5) * start
    low = random.uniform(0.1, 0.5) * start

    def shape(x: float) -> float:
        if x < turn:
            return low + (start - low) * math.exp(-4 * x / turn)
        return low + height * ((x - turn) / (1 - turn)) ** random_power

    random_power = random.choice([1.0, 2.0])
    return noisy(shape, count, random.choice([0.01, 0.05]) * start, random)


def flat(random: Random) -> list[float]:
    """Nothing is learned: the level of chance from the first to the last point."""
    level = random.uniform(0.5, 8)
    return noisy(lambda x: level, random.choice([100, 200, 500, 1000]), random.choice([0.001, 0.01]) * level, random)


def plateau(random: Random) -> list[float]:
    """It learned all it could in the first fifth."""
    start, low = random.uniform(2, 8), random.uniform(0.3, 1.0)
    count = random.choice([200, 400, 1000])
    return noisy(
        lambda x: low + (start - low) * math.exp(-40 * x), count, random.choice([0.001, 0.005]) * start, random
    )


def overfitted(random: Random) -> tuple[list[float], list[float]]:
    """Training and held-out loss, an epoch a point: the second turns and rises while the first goes on falling."""
    count = random.choice([12, 20, 40, 80])
    start = random.uniform(1, 5)
    turn = random.uniform(0.2, 0.6)
    rise = random.uniform(0.3, 1.0) * start

    def held(x: float) -> float:
        low = 0.3 * start
        return low + (start - low) * math.exp(-5 * x / turn) + max(0.0, x - turn) * rise

    spread = random.choice([0.0, 0.01]) * start
    return noisy(lambda x: start * math.exp(-3 * x), count, spread / 4, random), noisy(held, count, spread, random)


def generalising(random: Random) -> tuple[list[float], list[float]]:
    """Both fall; the held-out one stays above and is noisier, and may level off."""
    count = random.choice([6, 12, 20, 40, 80])
    start, gap = random.uniform(1, 5), random.uniform(0.0, 0.4)
    spread = random.choice([0.0, 0.01, 0.04]) * start
    train = noisy(lambda x: start * (0.1 + 0.9 * math.exp(-3 * x)), count, spread / 4, random)
    held = noisy(lambda x: start * (0.1 + gap + (0.9 - gap) * math.exp(-4 * x)), count, spread, random)
    return train, held
