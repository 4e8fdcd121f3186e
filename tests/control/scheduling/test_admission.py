"""What no backend could ever run is refused before it is stored."""

from __future__ import annotations

from typing import Any

import pytest
from tests.control.clouds import FakeCloud
from tests.control.fakes import FakeBackend, FakeClock, InlineCalls
from tests.control.harness import job_spec

from crucible.control.runtime.system_ports import LocalWakeups
from crucible.control.scheduling.admission import Admission
from crucible.control.scheduling.backends import ConnectedBackends
from crucible.control.scheduling.offers import OfferBook
from crucible.core.compute.resources import GiB, Resources
from crucible.core.errors import NoCapacity, RefusedByPolicy, UnknownName, Unreachable


def admission(*backends: FakeBackend) -> Admission:
    connected = ConnectedBackends({backend.name: backend for backend in backends or (FakeBackend(), FakeCloud())})
    return Admission(connected, OfferBook(connected, InlineCalls(), FakeClock(), LocalWakeups()))


async def check(admit: Admission, **more: Any) -> Resources:
    spec = job_spec(**more)
    await admit.prepare([spec])
    return admit.check(spec)


async def refusal(**more: Any) -> NoCapacity:
    with pytest.raises(NoCapacity) as refused:
        await check(admission(), **more)
    return refused.value


async def test_the_resources_of_a_job_include_those_of_its_tier() -> None:
    assert (await check(admission(), cpus=3)).cpus == 3
    sized = await check(admission(), resources={}, tier="CPU_LARGE")
    assert (sized.cpus, sized.memory_bytes) == (2, 4 * GiB)
    with pytest.raises(UnknownName):
        await check(admission(), tier="CPU_HUGE")


@pytest.mark.parametrize("where", [{"backend": "nowhere"}, {"backend": "cloud", "fallback": ("local", "nowhere")}])
async def test_every_backend_has_to_be_connected(where: dict[str, Any]) -> None:
    with pytest.raises(UnknownName, match="nowhere"):
        await check(admission(), **where)


async def test_a_backend_that_was_never_asked_may_hold_anything() -> None:
    assert admission().check(job_spec(cpus=400)).cpus == 400, "nobody knows yet that it is too large"
    silent = FakeCloud(down=Unreachable("No answer."))
    assert (await check(admission(silent), backend="cloud", cpus=400)).cpus == 400


async def test_a_job_is_measured_by_the_offers_for_its_own_need() -> None:
    admit = admission()
    spec = job_spec(backend="cloud", cpus=64)
    await admit.prepare([job_spec(backend="cloud")])
    admit.check(spec)
    await admit.prepare([spec])
    with pytest.raises(NoCapacity):
        admit.check(spec)


async def test_too_large_for_all_is_refused_with_all_reasons() -> None:
    refused = await refusal(backend="cloud", fallback=("local",), cpus=64)
    assert str(refused).startswith("No backend can hold this job: it asks for 64 CPUs; sim.small has 2.")
    assert {item["backend"] for item in refused.data["rejected"]} == {"cloud", "local"}
    assert "--tier" in refused.fix


async def test_large_enough_on_one_backend_is_taken() -> None:
    assert (await check(admission(), backend="cloud", fallback=("local",), cpus=4)).cpus == 4


async def test_what_is_sold_out_may_come_back() -> None:
    cloud = FakeCloud()
    cloud.sold_out = set(cloud.rates)
    assert await check(admission(cloud), backend="cloud")


async def test_spot_where_there_is_none_names_the_option() -> None:
    admit = admission(FakeCloud(no_spot=True))
    with pytest.raises(NoCapacity, match="with --spot-fallback it could run on demand"):
        await check(admit, backend="cloud", market="spot")
    assert await check(admit, backend="cloud", market="spot", spot_fallback=True)
    assert await check(admission(), market="spot"), "this computer satisfies every market"


async def test_a_region_without_machines_is_refused() -> None:
    assert "wants west; sim.small is in north-1" in str(await refusal(backend="cloud", regions=("west",)))
    assert await check(admission(), backend="cloud", regions=("south",))


async def test_a_job_in_place_is_refused_where_that_is_impossible() -> None:
    refused = await refusal(backend="cloud", in_place="/home/me")
    assert "is to run in place, which cloud cannot; leave out --in-place" in str(refused)
    assert await check(admission(), backend="cloud", fallback=("local",), in_place="/home/me")


async def test_more_than_the_budget_is_refused_by_policy() -> None:
    with pytest.raises(RefusedByPolicy, match=r"within its max_cost_usd: it would cost \$0\.00775") as refused:
        await check(admission(), backend="cloud", max_cost_usd=0.001)
    assert "Raise max_cost_usd" in refused.value.fix
    with pytest.raises(NoCapacity):
        await check(admission(), backend="cloud", max_cost_usd=0.001, cpus=64)
    assert await check(admission(), backend="cloud", fallback=("local",), max_cost_usd=0)
