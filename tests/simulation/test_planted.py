"""The simulator under test: it finds what peers got wrong, when we get it wrong too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from tests.simulation.planted import ALL, Planted

from crucible.simulation.faults.run import run

SEEDS = 200


def seeds(first: int) -> Iterator[int]:
    yield first
    yield from (seed for seed in range(1, SEEDS + 1) if seed != first)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    found = next((seed for seed in islice(seeds(bug.first), SEEDS) if not run(seed).ok), None)
    assert found is not None


@pytest.mark.timeout(900)
def test_the_seeds_that_find_them_are_silent_without_them() -> None:
    broken = {seed: run(seed).broken for seed in sorted({bug.first for bug in ALL})}
    assert {seed: what for seed, what in broken.items() if what} == {}
