"""Each kind of machine is corrected by what jobs took on it."""

from __future__ import annotations

import time

import pytest

from crucible.core.compute.offers import Offer
from crucible.core.compute.resources import Capacity, GiB, Resources
from crucible.core.routing.corrections import PastRun, PastRuns, Similarity
from crucible.core.routing.estimate import duration
from crucible.core.routing.machine_speed import DataSheetSpeeds
from crucible.core.routing.measured_speed import UNNAMED, CorrectedSpeeds, gpu_used
from crucible.core.routing.plan import route
from crucible.core.routing.plan_request import Objective, PlanRequest
from crucible.core.routing.profile import Conclusion, Confidence, GpuNeed, Profile
from crucible.core.routing.profile_input import make_workload
from crucible.core.routing.workload import Workload

SHEETS = DataSheetSpeeds()
SCRIPT = "train.py"
READ = Profile(gpu=Conclusion(GpuNeed.OPTIONAL), runtime_hours=Conclusion(2.0, Confidence.MEDIUM))


def offer(gpu: str = "", gpus: int = 1) -> Offer:
    size = Capacity(cpus=8, memory_bytes=32 * GiB, gpus=tuple(range(gpus)) if gpu else (), gpu_name=gpu)
    return Offer("cloud", "here", f"with {gpu}", size, 1000)


def lessons(gpu: str, ratio: float, count: int = 30, script: str = SCRIPT) -> list[PastRun]:
    return [PastRun(Similarity("torch", gpu, script), 100.0, 100.0, 100.0 * ratio)] * count


def learned(*taught: PastRun, script: str = SCRIPT) -> CorrectedSpeeds:
    return CorrectedSpeeds(SHEETS, PastRuns(taught), "torch", script)


def seconds(found: CorrectedSpeeds, there: Offer) -> float | None:
    plain = make_workload(PlanRequest(), READ)
    return duration(make_workload(PlanRequest(), READ, found.correction_for(plain.compute)), there, found)[0]


def analytic(there: Offer) -> float:
    found, _ = duration(make_workload(PlanRequest(), READ), there, SHEETS)
    assert found is not None
    return found


@pytest.mark.parametrize("gpu", ["T4", "A10G", ""])
def test_a_machine_takes_the_factor_of_its_own_gpu(gpu: str) -> None:
    found = learned(*lessons("T4", 2.0), *lessons("A10G", 0.5), *lessons("", 4.0))
    there = offer(gpu)
    assert seconds(found, there) == pytest.approx(analytic(there) * found.correction_on(gpu).factor)
    assert found.correction_on(gpu).factor == pytest.approx({"T4": 2.0, "A10G": 0.5, "": 4.0}[gpu], rel=0.1)


def test_without_experience_the_model_stands() -> None:
    for there in (offer("T4"), offer("A100-40GB"), offer()):
        assert seconds(learned(), there) == analytic(there)


def test_a_program_without_a_gpu_is_corrected_wherever_it_runs() -> None:
    profile = Profile(gpu=Conclusion(GpuNeed.NONE), runtime_hours=Conclusion(1.0))
    found = learned(*lessons("", 3.0))
    work = make_workload(PlanRequest(), profile, found.correction_for(make_workload(PlanRequest(), profile).compute))
    assert duration(work, offer("A10G"), found)[0] == pytest.approx(3600 * found.correction_on("").factor)
    assert gpu_used(work, offer("A10G")) == ""


def test_experience_changes_what_is_fastest() -> None:
    """On paper an A10G is; here it never was."""
    found = learned(*lessons("A10G", 20.0), *lessons("T4", 1.0))
    offers = [offer("A10G"), offer("T4")]
    assert analytic(offers[0]) < analytic(offers[1])
    plain = make_workload(PlanRequest(), READ)
    work = make_workload(PlanRequest(), READ, found.correction_for(plain.compute))
    best = route(work, PlanRequest(optimize=Objective.SPEED), offers, found).ranked[0]
    assert best.offer is offers[1]


def test_it_is_as_sure_as_jobs_on_such_a_machine_make_it() -> None:
    found = learned(*lessons("A10G", 2.0))
    work = make_workload(PlanRequest(), READ)
    ranked = {
        one.offer.capacity.gpu_name: one for one in route(work, PlanRequest(), [offer("A10G"), offer()], found).ranked
    }
    assert found.with_confidence(ranked["A10G"]).estimate.confidence is Confidence.HIGH
    assert found.with_confidence(ranked[""]) == ranked[""]
    assert learned(*lessons("A10G", 2.0, count=2)).with_confidence(ranked["A10G"]) == ranked["A10G"]


def test_what_ran_elsewhere_moves_it_and_makes_nobody_sure() -> None:
    found = learned(*lessons("A10G", 2.0)).correction_on("T4")
    assert found.factor > 1.5
    assert (found.runs, found.confidence) == (30, None)


def test_a_gpu_that_nobody_knows_is_none_of_the_processors() -> None:
    unnamed = Offer("local", "here", "this computer", Capacity(cpus=8, memory_bytes=GiB, gpus=(0,)), 0)
    assert gpu_used(Workload(Resources(), GpuNeed.OPTIONAL), unnamed) == UNNAMED
    assert gpu_used(Workload(Resources(), GpuNeed.OPTIONAL), offer()) == ""


@pytest.mark.quiet
def test_many_lessons_are_sorted_once() -> None:
    """A thousand lessons and every GPU of a catalog, in what a plan may take."""
    taught = [PastRun(Similarity("torch", f"gpu-{n % 30}", f"{n % 50}.py"), 100.0, 100.0, 150.0) for n in range(1000)]
    experience = PastRuns(taught)
    began = time.process_time()
    found = CorrectedSpeeds(SHEETS, experience, "torch", "3.py")
    for n in range(30):
        assert found.correction_on(f"gpu-{n}").factor > 1
    assert time.process_time() - began < 0.05
