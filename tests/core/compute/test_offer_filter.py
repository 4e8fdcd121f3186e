"""Filters of offers: what they take, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.compute.offers import Market
from crucible.core.compute.resources import GiB


def test_without_a_word_it_fits_everything() -> None:
    assert OfferFilter().model_dump(exclude_defaults=True) == {}


def test_words_are_read_as_people_write_them() -> None:
    wanted = OfferFilter.model_validate(
        {
            "gpu_memory": "24GB",
            "memory": 1024,
            "market": ["on-demand,spot"],
            "provider": ["aws,gcp"],
            "max_price": "2.5",
        }
    )
    assert (wanted.gpu_memory, wanted.memory) == (24 * GiB, 1024)
    assert wanted.market == (Market.ON_DEMAND, Market.SPOT)
    assert wanted.provider == ("aws", "gcp")
    assert wanted.max_rate == 2_500_000


def test_it_survives_a_trip_through_json() -> None:
    wanted = OfferFilter(gpu="A100", gpu_memory=80 * GiB, market=("spot",), region=("us-east-1",), max_price=1.5)
    assert OfferFilter.model_validate(wanted.model_dump(mode="json", exclude_defaults=True)) == wanted


@pytest.mark.parametrize(
    "given",
    [
        {"gpus": -1},
        {"gpu": ""},
        {"gpu": "x" * 101},
        {"gpu_memory": "lots"},
        {"memory": -1},
        {"cpus": 1e9},
        {"market": ["weekly"]},
        {"provider": ["x"] * 21},
        {"max_price": -0.1},
        {"max_price": float("nan")},
        {"colour": "green"},
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OfferFilter.model_validate(given)
