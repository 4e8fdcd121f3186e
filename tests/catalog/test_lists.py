"""Price lists: what holds for all rows that were read from one page."""

from __future__ import annotations

from datetime import date

import pytest

from crucible.catalog.lists import PROVIDERS, WITHOUT_INTERFACE, PriceList, price_lists
from crucible.catalog.store import shipped
from crucible.core.compute.pricing import Segment, machine_cost


def test_every_provider_has_a_page_and_every_page_has_rows() -> None:
    assert {page.provider for page in price_lists().values()} == set(PROVIDERS)
    assert {row.price_list for row in shipped().rows} == set(price_lists())
    assert set(PROVIDERS) > WITHOUT_INTERFACE


@pytest.mark.parametrize("page", price_lists().values(), ids=lambda page: page.name)
def test_each_says_what_an_offer_needs(page: PriceList) -> None:
    assert page.source.startswith("https://")
    assert date.fromisoformat(page.dated) < date(2026, 1, 1)
    assert page.billing.granularity >= 1
    assert 5 <= page.startup_seconds <= 600
    assert page.egress_per_gb is None or 0 <= page.egress_per_gb < 200_000


@pytest.mark.parametrize(
    ("name", "seconds", "billed"),
    [("aws-ec2", 10, 60), ("aws-ec2", 90.5, 91), ("azure-vm", 90, 120), ("modal", 10, 10), ("paperspace", 61, 3600)],
)
def test_billing_rules_are_those_of_the_providers(name: str, seconds: float, billed: int) -> None:
    cost = machine_cost([Segment(0.0, seconds, 3_600_000)], price_lists()[name].billing, seconds)
    assert cost == billed * 1000
