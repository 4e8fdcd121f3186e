"""Compare predicted run times of published runs with their actual ones."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from benchmarks.analysis.runs import PARTS, PUBLISHED, Run
from crucible.analysis import Sources, analyse
from crucible.core.compute.gpus import find_gpu
from crucible.core.compute.offers import Offer
from crucible.core.compute.resources import Capacity, GiB, Resources
from crucible.core.routing.estimate import duration
from crucible.core.routing.machine_speed import DataSheetSpeeds
from crucible.core.routing.profile import GpuNeed, Profile
from crucible.core.routing.roofline import with_load
from crucible.core.routing.workload import ComputeTime, Workload

REFERENCE = "T4"


@dataclass(frozen=True)
class Predicted:
    run: Run
    hours: float

    @property
    def ratio(self) -> float:
        """Ratio of predicted to actual time; above one: the prediction was too long."""
        return self.hours / self.run.hours


@lru_cache
def profile_of(file: str, arguments: tuple[str, ...]) -> Profile:
    return analyse(Sources({file: (PUBLISHED / file).read_bytes()}, file, arguments))


def predict(run: Run) -> Predicted:
    """Predict as the product does: hours on the reference GPU from the code, converted by the router."""
    profile = profile_of(run.file, run.arguments)
    if profile.runtime_hours.value is None or profile.precision.value is None:
        raise ValueError(f"{run.name}: its run time is unknown: {profile.runtime_hours.question}")
    told = ComputeTime(profile.runtime_hours.value * 3600, REFERENCE, 1, profile.precision.value.value)
    work = Workload(Resources(gpus=run.gpus), GpuNeed.REQUIRED, with_load(told, profile))
    seconds, _ = duration(work, _machine(run), DataSheetSpeeds())
    if seconds is None:
        raise ValueError(f"{run.name}: the router cannot predict its run time.")
    return Predicted(run, seconds / 3600)


def _machine(run: Run) -> Offer:
    memory = find_gpu(run.gpu).memory_bytes
    held = Capacity(
        cpus=16,
        memory_bytes=64 * GiB,
        gpus=tuple(range(run.gpus)),
        gpu_memory_bytes=memory,
        gpu_name=run.gpu,
    )
    return Offer("published", "there", run.gpu, held, 0)


def middle(found: Sequence[Predicted]) -> float:
    """Return the median factor by which predictions are too long or too short."""
    return statistics.median(max(one.ratio, 1 / one.ratio) for one in found)


def report(runs: Sequence[Run], say: Callable[[str], None]) -> None:
    """Print each run, then the medians of fitted and other runs."""
    found = [predict(run) for run in runs]
    say(f"{'run':36} {'on':18} {'predicted h':>11} {'published h':>11} {'ratio':>6}")
    for one in found:
        where = f"{one.run.gpus} x {one.run.gpu}"
        say(f"{one.run.name:36} {where:18} {one.hours:11.3g} {one.run.hours:11.3g} {one.ratio:6.2f}  {one.run.part}")
    for name in PARTS:
        chosen = [one for one in found if one.run.part == name]
        if chosen:
            say(f"{name}: {len(chosen)} runs, off by a factor of {middle(chosen):.2f} (median)")
