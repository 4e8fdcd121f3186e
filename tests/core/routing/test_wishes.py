"""Wishes that contradict each other are told so, with what to change."""

from __future__ import annotations

import pytest
from tests.core.routing.market import work

from crucible.core.errors import BadInput
from crucible.core.offers import Market
from crucible.core.resources import Resources
from crucible.core.routing.wishes import Objective, Wishes, check
from crucible.core.routing.work import Work


@pytest.mark.parametrize(
    ("wishes", "told"),
    [
        (Wishes(optimize=Objective.DEADLINE), "no deadline to meet"),
        (Wishes(deadline=0.0), "has passed"),
        (Wishes(max_cost=-1), "less than nothing"),
        (Wishes(market=Market.SPOT), "may not be interrupted"),
        (Wishes(backend="aws", backends=("gcp", "modal")), "only on gcp, modal"),
    ],
)
def test_contradictions(wishes: Wishes, told: str) -> None:
    with pytest.raises(BadInput, match=told) as caught:
        check(wishes, work())
    assert caught.value.fix


def test_a_kind_of_gpu_and_no_gpu() -> None:
    with pytest.raises(BadInput, match="and no GPU"):
        check(Wishes(gpu_types=("A100",)), Work(Resources()))


@pytest.mark.parametrize(
    "wishes",
    [
        Wishes(),
        Wishes(optimize=Objective.DEADLINE, deadline=60.0),
        Wishes(max_cost=0),
        Wishes(backend="aws", backends=("aws",)),
        Wishes(gpu_types=("T4",)),
    ],
)
def test_what_can_be_wished_for(wishes: Wishes) -> None:
    check(wishes, work())


def test_spot_for_what_may_be_interrupted() -> None:
    check(Wishes(market=Market.SPOT), work(interruptible=True))
