"""A refresh as a whole: asked, judged, kept; and when anything is wrong, the old prices stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.catalog.builders import usd
from tests.catalog.refresh.providers import (
    FakeAws,
    FakeAzure,
    FakeGcp,
    FakeLambda,
    FakeSdk,
    Handler,
    aws_line,
    aws_list,
    azure_item,
    lambda_types,
    product,
    sku,
)

from crucible.catalog import PROVIDERS, Library, Need, Rule
from crucible.catalog.refresh import BadAnswer, RefreshResult, refresh
from crucible.catalog.rows import Row
from crucible.catalog.sources import Sources
from crucible.catalog.store import shipped
from crucible.core.compute.offers import Market
from crucible.core.errors import BadInput, CrucibleError, UnknownName
from crucible.core.secret import Secret

DAY = date(2025, 10, 1)
WORDS = (
    "Items",
    "NextPageLink",
    "armSkuName",
    "armRegionName",
    "unitPrice",
    "skus",
    "nextPageToken",
    "description",
    "serviceRegions",
    "pricingInfo",
    "data",
    "instance_type",
    "price_cents_per_hour",
    "spot_advisor",
    "gpu_1x_a10",
)
KEYS = {"gcp": Secret("a-key"), "lambda": Secret("a-key")}


def rows_of(provider: str, region: str | None = None) -> list[Row]:
    return [row for row in shipped().rows if row.provider == provider and region in (None, row.region)]


def ask(
    library: Library, provider: str, handler: Handler, *regions: str, clients: Callable[[], object] = lambda: None
) -> RefreshResult:
    sources = Sources(KEYS, httpx2.MockTransport(handler), clients)  # type: ignore[arg-type]
    return refresh(library, provider, regions, DAY, sources)


def rate(library: Library, kind: str, region: str, market: Market = Market.ON_DEMAND) -> tuple[int, str]:
    (offer,) = library.stock(DAY).catalog.offers(Need(instance_type=kind, regions=(region,), markets=(market,)))
    return offer.rate, offer.dated


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "catalog")


def every_aws_price(factor: float = 1.0) -> FakeAws:
    lines = [
        aws_line(row.instance_type, str((row.on_demand or 0) / 1e6 * factor)) for row in rows_of("aws", "us-east-1")
    ]
    return FakeAws({"us-east-1": aws_list(*lines)}, {"us-east-1": {"g4dn.xlarge": {"r": 2, "s": 70}}})


def test_aws_from_its_public_lists(library: Library) -> None:
    found = ask(library, "aws", every_aws_price(0.9))
    assert found.refused == ()
    assert "Spot Advisor" in found.notes[0]
    assert rate(library, "g4dn.xlarge", "us-east-1") == (pytest.approx(usd(0.526 * 0.9), abs=1), "2025-10-01")
    assert rate(library, "g4dn.xlarge", "us-east-1", Market.SPOT)[0] == pytest.approx(usd(0.526 * 0.9 * 0.3), abs=1)
    assert rate(library, "g4dn.xlarge", "us-west-2") == (usd(0.526), "2025-09-01"), "was not asked for"
    (spot,) = library.stock(DAY).catalog.offers(
        Need(instance_type="g4dn.xlarge", regions=("us-east-1",), markets=(Market.SPOT,))
    )
    assert spot.tariff.interruption == (0.10, 0.15)


def test_aws_with_its_sdk(library: Library) -> None:
    texts = [product(row.instance_type, str((row.on_demand or 0) / 1e6)) for row in rows_of("aws", "us-east-1")]
    entry = {"InstanceType": "p3.2xlarge", "AvailabilityZone": "us-east-1a", "SpotPrice": "0.91", "Timestamp": "2025"}
    sdk = FakeSdk({"us-east-1": texts}, {"us-east-1": [dict(entry)]})
    found = ask(library, "aws", FakeAws(), clients=lambda: sdk)
    assert found.notes == ()
    assert rate(library, "p3.2xlarge", "us-east-1", Market.SPOT) == (usd(0.91), "2025-10-01")


def test_an_sdk_that_fails_is_told(library: Library) -> None:
    sdk = FakeSdk(broken=RuntimeError("ExpiredToken"))
    with pytest.raises(BadAnswer, match="ExpiredToken"):
        ask(library, "aws", FakeAws(), clients=lambda: sdk)


def test_azure_page_by_page(library: Library) -> None:
    items = [azure_item(row.instance_type, (row.on_demand or 0) / 1e6, row.region) for row in rows_of("azure")]
    fake = FakeAzure([*items, azure_item("Standard_NC4as_T4_v3", 0.11, skuName="NC4as T4 v3 Spot")], size=7)
    found = ask(library, "azure", fake)
    assert len(found.rows) == len(items)
    assert len(fake.asked) > 20
    assert rate(library, "Standard_NC4as_T4_v3", "eastus", Market.SPOT) == (usd(0.11), "2025-10-01")


def test_azure_in_one_region(library: Library) -> None:
    items = [azure_item(row.instance_type, (row.on_demand or 0) / 1e6, row.region) for row in rows_of("azure")]
    found = ask(library, "azure", FakeAzure(items, size=1000), "eastus")
    assert {row.region for row in found.rows} == {"eastus"}


def test_a_next_page_at_another_host_is_not_followed(library: Library) -> None:
    fake = FakeAzure([azure_item("Standard_NC4as_T4_v3", 0.5)], elsewhere=True)
    with pytest.raises(BadAnswer, match="another host"):
        ask(library, "azure", fake, "eastus")
    assert all("prices.azure.com" in url for url in fake.asked)


def gcp_parts(region: str = "us-central1") -> list[list[dict[str, object]]]:
    prices = {
        "E2 Instance": (0.02181159, 0.00292353),
        "N1 Predefined Instance": (0.031611, 0.004237),
        "N2 Instance": (0.031611, 0.004237),
        "C3 Instance": (0.03398, 0.00408),
        "G2 Instance": (0.02498, 0.00293),
        "A2 Instance": (0.031611, 0.004237),
    }
    gpus = {"Tesla T4": 0.35, "Tesla V100": 2.48, "Tesla P100": 1.46, "L4": 0.56, "Tesla A100": 2.934}
    cores = [sku(f"{name} Core running in Americas", core, [region]) for name, (core, _) in prices.items()]
    memory = [sku(f"{name} Ram running in Americas", ram, [region]) for name, (_, ram) in prices.items()]
    return [
        cores,
        memory,
        [sku(f"Nvidia {name} GPU running in Americas", price, [region]) for name, price in gpus.items()],
    ]


def test_gcp_put_together_from_parts(library: Library) -> None:
    found = ask(library, "gcp", FakeGcp(gcp_parts()), "us-central1")
    assert found.refused == ()
    assert rate(library, "n1-standard-8+1xV100", "us-central1") == (
        pytest.approx(usd(8 * 0.031611 + 30 * 0.004237 + 2.48), abs=2),
        "2025-10-01",
    )
    assert rate(library, "a2-ultragpu-1g", "us-central1")[1] == "2025-06-01", "its GPU was not in the answer"


def test_gcp_without_a_key_or_with_a_bad_one(library: Library) -> None:
    with pytest.raises(BadInput, match="without a key") as caught:
        refresh(library, "gcp", (), DAY, Sources())
    assert "GOOGLE_API_KEY" in caught.value.fix
    with pytest.raises(BadAnswer, match="requires a valid key") as refused:
        ask(library, "gcp", FakeGcp(gcp_parts(), key="another"))
    assert "a-key" not in str(refused.value)


def test_gcp_with_the_same_page_for_ever(library: Library) -> None:
    with pytest.raises(BadAnswer, match="same page twice"):
        ask(library, "gcp", FakeGcp(endless=True))


def test_lambda_everywhere_at_once(library: Library) -> None:
    found = ask(library, "lambda", FakeLambda(lambda_types(1.2)))
    assert (len(found.rows), found.refused) == (len(rows_of("lambda")), ())
    assert rate(library, "gpu_1x_a10", "us-east-1") == (usd(0.9), "2025-10-01")


@pytest.mark.parametrize("provider", ["modal", "paperspace", "colab"])
def test_who_has_no_price_interface_is_not_asked(library: Library, provider: str) -> None:
    with pytest.raises(BadInput, match="cannot be refreshed") as caught:
        refresh(library, provider, (), DAY, Sources())
    assert "https://" in caught.value.why


def test_names_that_nobody_knows(library: Library) -> None:
    with pytest.raises(UnknownName):
        refresh(library, "amazon", (), DAY, Sources())
    with pytest.raises(UnknownName):
        refresh(library, "aws", ("us-east-1' or 1 eq 1",), DAY, Sources())


def cut(text: str) -> Handler:
    return lambda _request: httpx2.Response(200, text=text)


BROKEN: dict[str, list[Handler]] = {
    "aws": [
        cut(""),
        cut("<html>"),
        cut(aws_list()),
        cut(aws_list(aws_line("g4dn.xlarge", "0.526"))),
        FakeAws(),
        every_aws_price(-1.0),
        every_aws_price(0.0),
        every_aws_price(1000.0),
    ],
    "azure": [
        cut("{"),
        cut("[]"),
        cut('{"Items": 5}'),
        FakeAzure(),
        FakeAzure([azure_item("Standard_NC4as_T4_v3", 0.5)]),
        FakeAzure([azure_item(row.instance_type, 1, row.region, currencyCode="EUR") for row in rows_of("azure")], 1000),
    ],
    "gcp": [cut("null"), cut('{"skus": {}}'), FakeGcp([[]]), FakeGcp(gcp_parts()[:1])],
    "lambda": [
        cut('{"data": [1]}'),
        FakeLambda(),
        FakeLambda(lambda_types(0.0)),
        FakeLambda({"x": None}),
        cut("x" * 99),
    ],
}


@pytest.mark.parametrize(
    ("provider", "handler"), [(provider, handler) for provider, handlers in BROKEN.items() for handler in handlers]
)
def test_a_bad_answer_leaves_everything_as_it_was(tmp_path: Path, provider: str, handler: Handler) -> None:
    library = Library(tmp_path)
    before = library.stock(DAY).catalog.offers()
    with pytest.raises(CrucibleError) as caught:
        ask(library, provider, handler)
    assert "stay in use" in caught.value.why
    assert caught.value.fix
    assert list(tmp_path.iterdir()) == []
    assert library.stock(DAY).catalog.offers() == before


def test_one_odd_price_is_refused_and_the_others_are_kept(library: Library) -> None:
    fake = every_aws_price()
    fake.lists["us-east-1"] = fake.lists["us-east-1"].replace(
        aws_line("p3.2xlarge", "3.06"), aws_line("p3.2xlarge", "290")
    )
    assert "290" in fake.lists["us-east-1"]
    found = ask(library, "aws", fake)
    assert {finding.rule for finding in found.refused} == {Rule.GPU_OUTLIER, Rule.REGION_OUTLIER}
    assert rate(library, "p3.2xlarge", "us-east-1") == (usd(3.06), "2025-06-01")
    assert rate(library, "g4dn.xlarge", "us-east-1")[1] == "2025-10-01"


def test_a_later_refresh_of_another_region_keeps_the_first(library: Library) -> None:
    items = [azure_item(row.instance_type, (row.on_demand or 0) / 1e6 * 0.9, row.region) for row in rows_of("azure")]
    ask(library, "azure", FakeAzure(items, 1000), "eastus")
    ask(library, "azure", FakeAzure(items, 1000), "westus2")
    for region in ("eastus", "westus2"):
        assert rate(library, "Standard_D2s_v5", region) == (pytest.approx(usd(0.096 * 0.9), abs=1), "2025-10-01")
    assert rate(library, "Standard_D2s_v5", "eastus2")[1] == "2025-06-01"


def test_the_package_is_never_written(library: Library, tmp_path: Path) -> None:
    ask(library, "lambda", FakeLambda(lambda_types()))
    assert [path.name for path in (tmp_path / "catalog").iterdir()] == ["lambda.csv"]
    assert "a-key" not in (tmp_path / "catalog" / "lambda.csv").read_text()


def test_every_provider_is_asked_or_says_why_not(library: Library) -> None:
    def nobody(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(500)

    for provider in PROVIDERS:
        with pytest.raises(CrucibleError) as caught:
            ask(library, provider, nobody)
        assert caught.value.fix


answers = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(("USD", "1 Hour")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(provider=st.sampled_from(["aws", "azure", "gcp", "lambda"]), answer=answers)
def test_any_answer_at_all_is_refused_in_words(provider: str, answer: object) -> None:
    library = Library()  # has no folder: anything that is kept would be an error of its own
    body = json.dumps(answer)
    with pytest.raises(CrucibleError) as caught:
        ask(library, provider, lambda _request: httpx2.Response(200, text=body))
    assert caught.value.code in ("bad_answer", "timed_out")
