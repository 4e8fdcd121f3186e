"""The ways in which a job may run, in the user's order."""

from __future__ import annotations

from typing import Any

from crucible.core.compute.offers import Market, Need
from crucible.core.compute.resources import Resources
from crucible.core.job.spec import JobSpec
from crucible.core.scheduling.candidates import Candidate, backends_of, list_candidates
from crucible.core.scheduling.state import WaitingJob


def job(**more: Any) -> JobSpec:
    return JobSpec(command=("true",), **more)


def test_a_job_without_wishes_runs_here() -> None:
    assert list_candidates(job()) == (Candidate("local"),)


def test_the_users_order_each_backend_once() -> None:
    found = list_candidates(job(backend="aws", fallback=("local", "aws", "ssh")))
    assert found == (Candidate("aws"), Candidate("local"), Candidate("ssh"))


def test_the_market_is_that_of_every_candidate() -> None:
    found = list_candidates(job(backend="aws", fallback=("gcp",), market="spot"))
    assert found == (Candidate("aws", Market.SPOT), Candidate("gcp", Market.SPOT))
    assert list_candidates(job(market="reserved")) == (Candidate("local", Market.RESERVED),)


def test_spot_on_every_backend_comes_before_on_demand_on_any() -> None:
    found = list_candidates(job(backend="aws", fallback=("gcp",), market="spot", spot_fallback=True))
    assert found == (
        Candidate("aws", Market.SPOT),
        Candidate("gcp", Market.SPOT),
        Candidate("aws", Market.ON_DEMAND),
        Candidate("gcp", Market.ON_DEMAND),
    )
    assert backends_of(found) == ("aws", "gcp")


def test_a_backend_that_the_user_named_since_is_the_only_one() -> None:
    spec = job(backend="aws", fallback=("gcp",), market="spot", spot_fallback=True)
    assert backends_of(list_candidates(spec, "ssh")) == ("ssh",)
    assert [candidate.market for candidate in list_candidates(spec, "ssh")] == [Market.SPOT, Market.ON_DEMAND]


def test_backends_are_asked_for_all_that_offers_may_depend_on() -> None:
    size = Resources(cpus=2, gpus=1, seconds=600)
    spec = job(resources=size, gpu_types=("A100",), regions=("eu",), market="spot", spot_fallback=True)
    need = WaitingJob("job-1", 0, spec, list_candidates(spec)).need
    markets = (Market.SPOT, Market.ON_DEMAND)
    assert need == Need(Resources(cpus=2, gpus=1), spec.gpu_types, ("eu",), markets), "time changes no offer"
