from __future__ import annotations

import pytest
from tests.client.programs import training
from tests.client.real_server import RealServer

from crucible import MLPlatform
from crucible.client.compat import WorkloadRouter
from crucible.core.compute.offers import Availability
from crucible.core.errors import BadInput, UnknownName
from crucible.core.routing.profile import Confidence

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def router(platform: MLPlatform) -> WorkloadRouter:
    return WorkloadRouter(platform)


async def test_of_each_backend_the_best_best_first(router: WorkloadRouter, real: RealServer) -> None:
    code = training(device="cuda")
    first, *others = await router.recommend_backend(code, {"optimize_for": "speed"})
    assert (first.backend, first.score, first.cost_estimate.hourly) == ("aws", 1, 0.5)
    assert 0.01 < first.cost_estimate.total < 0.1
    assert first.cost_estimate.confidence is Confidence.MEDIUM
    assert (first.availability.status, first.availability.wait_time) == (Availability.AVAILABLE, 60.0)
    assert others
    assert "aws" not in {one.backend for one in others}
    assert len({one.backend for one in others}) == len(others)
    assert {(one.availability.status, one.availability.wait_time) for one in others} == {(Availability.LIMITED, None)}
    for one in others:
        assert f"Not connected, and no command connects {one.backend} yet" in one.cons[0]
    ((_, asked),) = real.sent
    assert asked["optimize"] == "speed"
    assert asked["files"] == {"main.py": code}


async def test_what_the_code_is_like(router: WorkloadRouter) -> None:
    found = await router.analyze_workload(training(5, samples=6_000_000, saves=True))
    assert found.duration_hours == pytest.approx(0.53, abs=0.01)
    assert (found.gpu_memory_gb, found.interruptible) == (0.51, False)
    assert (found.needs_persistent_storage, found.dataset_size_gb) == (True, 0)
    other = await router.analyze_workload(training(1, samples=None))
    assert (other.interruptible, other.needs_persistent_storage, other.dataset_size_gb) == (True, False, 0.011)


@pytest.mark.parametrize(("saves", "epochs", "minutes"), [(True, 5, 6.4), (True, None, None), (False, 5, None)])
async def test_how_often_it_saves(
    router: WorkloadRouter, saves: bool, epochs: int | None, minutes: float | None
) -> None:
    found = await router.analyze_workload(training(epochs, samples=6_000_000, saves=saves))
    assert found.duration_hours
    assert found.checkpoint_frequency == pytest.approx(minutes, abs=0.1)


async def test_what_cannot_be_read_is_asked(router: WorkloadRouter) -> None:
    with pytest.raises(BadInput, match="cannot be determined") as raised:
        await router.analyze_workload("x = 1")
    assert "How long does it run today, and on what?" in raised.value.fix


async def test_an_aim_that_is_none(router: WorkloadRouter) -> None:
    with pytest.raises(UnknownName):
        await router.recommend_backend("1", {"optimize_for": "luck"})
