"""A sweep: the server dies once at every named point; figures over many sweeps."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from pathlib import Path

import httpx2 as httpx
from tests.scale import Record

from crucible.control.reconcile.crashpoints import NAMES

FIRST = ("effect.claimed", "desired.before_answer")
"""Reached best while there is no machine yet; later any machine's talk or end leads to them."""

ELSEWHERE = frozenset({"withdraw.before_call", "withdraw.after_call"})
"""Reached only where a provider lets machines wait: see tests/control/machines/test_provider_queue.py."""

Tell = Callable[[Path, list[str]], None]


def swept(folder: Path, sweeps: int, tell: Tell) -> list[str]:
    """What broke. `tell` gets a folder and the points in their order: each sweep has both of its own."""
    broken = []
    for sweep in range(sweeps):
        own = folder / f"sweep-{sweep}"
        own.mkdir()
        try:
            tell(own, order(sweep))
        except (AssertionError, OSError, httpx.HTTPError) as error:
            traceback.print_exc()
            broken.append(f"sweep {sweep}: {error}")
    return broken


def order(sweep: int) -> list[str]:
    """All points: in the first sweep as they are best reached, after it shuffled by its number."""
    points = [*FIRST, *sorted(NAMES - ELSEWHERE - set(FIRST))]
    if sweep:
        random.Random(sweep).shuffle(points)
    return points


def judge(record: Record, backend: str, sweeps: int, broken: list[str]) -> None:
    record("crash-point sweep", points=len(NAMES - ELSEWHERE), backends=[backend], sweeps=sweeps, broken=len(broken))
    assert not broken, "\n".join(broken)
