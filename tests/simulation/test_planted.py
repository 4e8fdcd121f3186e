"""Test the simulator itself: it must find the bugs of peers when they are planted in our code."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

import pytest
from tests.scale import TEST, Record, Scale
from tests.simulation.planted import ALL, Planted

from crucible.simulation.faults.run import run

SEEDS = 200

LIFECYCLE = (
    "dstack#707, #3453; skypilot#4431",
    "skypilot#4431",
    "dstack#1551, #3031, #3324",
    "skypilot#2990, #4392",
    "skypilot#10155, #10157, #10123",
    "skypilot#5031, #7707",
    "skypilot#10682",
    "dstack#2068, #3449",
    "skypilot#4410",
    "dstack#2637",
    "skypilot#10021",
    "dstack#2783, ray#44561",
)
"""Issues of peers about the life of a job or a machine."""


def seeds(first: int) -> Iterator[int]:
    yield first
    yield from (seed for seed in range(1, SEEDS + 1) if seed != first)


@cache
def broken_without_it(seed: int) -> str:
    """Return what the seed breaks without a planted bug; cached, because several bugs share a seed."""
    return run(seed).broken


def test_every_failure_of_peers_is_planted() -> None:
    assert set(LIFECYCLE) <= {bug.seen for bug in ALL}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_and_its_seed_is_silent_without_it(
    bug: Planted, monkeypatch: pytest.MonkeyPatch, scale: Scale, record: Record
) -> None:
    first = bug.first if scale == TEST else 1
    with monkeypatch.context() as patch:
        bug.plant(patch)
        broken = ((tried, run(seed)) for tried, seed in enumerate(islice(seeds(first), SEEDS), start=1))
        found = next(((tried, outcome) for tried, outcome in broken if not outcome.ok), None)
    assert found is not None
    tried, outcome = found
    record("planted bugs", bug=bug.name, seen=bug.seen, seed=outcome.seed, seeds_tried=tried, found=outcome.broken)
    assert "Error(" not in outcome.broken, "what it does is found, not that it fails"
    assert broken_without_it(outcome.seed) == ""
