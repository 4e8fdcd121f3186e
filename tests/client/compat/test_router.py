from __future__ import annotations

import pytest
from tests.client.fake_server import FakeServer, plan_view, planned_offer

from crucible import MLPlatform
from crucible.client.compat import WorkloadRouter
from crucible.core.compute.offers import Availability
from crucible.core.errors import BadInput, UnknownName
from crucible.core.routing.profile import Confidence

pytestmark = pytest.mark.enable_socket

CHEAP = planned_offer(
    "cloud", rate_micros_per_hour=500_000, total_micros=1_000_000, score=1.0, confidence="medium", startup_seconds=30.0
)
DEAR = {**CHEAP, "rate_micros_per_hour": 900_000, "score": 0.5}
AFAR = {**CHEAP, "backend": "modal", "runnable": False, "why": "modal is not connected", "score": 0.9}


@pytest.fixture
def router(platform: MLPlatform) -> WorkloadRouter:
    return WorkloadRouter(platform)


async def test_of_each_backend_the_best_best_first(router: WorkloadRouter, server: FakeServer) -> None:
    server.plan = plan_view(offers=[CHEAP, DEAR, AFAR])
    first, second = await router.recommend_backend("import torch", {"optimize_for": "speed"})
    assert (first.backend, first.score, first.cost_estimate.hourly, first.cost_estimate.total) == ("cloud", 1, 0.5, 1)
    assert first.cost_estimate.confidence is Confidence.MEDIUM
    assert (first.availability.status, first.availability.wait_time) == (Availability.AVAILABLE, 30.0)
    assert (second.backend, second.availability.status) == ("modal", Availability.LIMITED)
    assert second.cons[0] == "modal is not connected"
    assert server.plans_asked[0]["optimize"] == "speed"
    assert server.plans_asked[0]["files"] == {"main.py": "import torch"}


async def test_what_the_code_is_like(router: WorkloadRouter, server: FakeServer) -> None:
    profile = {"gpu_memory_gb": 6.5, "checkpointing": True, "dataset": {"name": "mnist", "gb": 0.05}}
    server.plan = plan_view(profile=profile, hours=2.5, interruptible=True)
    found = await router.analyze_workload("import torch")
    assert (found.duration_hours, found.gpu_memory_gb, found.interruptible) == (2.5, 6.5, True)
    assert (found.needs_persistent_storage, found.dataset_size_gb) == (True, 0.05)


@pytest.mark.parametrize(("saves", "epochs", "minutes"), [(True, 5, 30.0), (True, None, None), (False, 5, None)])
async def test_how_often_it_saves(
    router: WorkloadRouter, server: FakeServer, saves: bool, epochs: int | None, minutes: float | None
) -> None:
    server.plan = plan_view(profile={"checkpointing": saves, "epochs": epochs}, hours=2.5)
    assert (await router.analyze_workload("import torch")).checkpoint_frequency == minutes


async def test_what_cannot_be_read_is_asked(router: WorkloadRouter, server: FakeServer) -> None:
    server.plan = plan_view(profile={"unknown": {"runtime_hours": "How many steps?"}})
    with pytest.raises(BadInput, match="cannot be read") as raised:
        await router.analyze_workload("x = 1")
    assert "How many steps?" in raised.value.fix


async def test_an_aim_that_is_none(router: WorkloadRouter) -> None:
    with pytest.raises(UnknownName):
        await router.recommend_backend("1", {"optimize_for": "luck"})
