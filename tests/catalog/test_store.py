"""The library: what came with this version, and over it what was refreshed here."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest
from tests.catalog.builders import DAY, make_row, usd

from crucible.catalog import PROVIDERS, Library, Need, Rule
from crucible.catalog.lists import price_lists
from crucible.catalog.rows import ParsedRows
from crucible.catalog.store import make_stock, shipped
from crucible.core.compute.offers import Market
from crucible.core.errors import Trouble

XLARGE = Need(providers=("aws",), regions=("us-east-1",), instance_type="g4dn.xlarge", markets=(Market.ON_DEMAND,))


def rate(library: Library, need: Need = XLARGE, day: date = DAY) -> int:
    return library.stock(day).catalog.offers(need)[0].rate


@pytest.mark.parametrize(
    ("instance_type", "price"),
    [
        ("g4dn.xlarge", 0.526),
        ("g4dn.2xlarge", 0.752),
        ("p3.2xlarge", 3.06),
        ("p3.8xlarge", 12.24),
        ("g5.2xlarge", 1.212),
    ],
)
def test_documented_prices_are_what_the_catalog_says(instance_type: str, price: float) -> None:
    need = Need(regions=("us-east-1",), instance_type=instance_type, markets=(Market.ON_DEMAND,))
    assert rate(Library(), need) == usd(price)


def test_every_provider_is_there_with_several_hundred_offers() -> None:
    catalog = Library().stock(DAY).catalog
    assert catalog.providers() == PROVIDERS
    assert len(catalog) > 1500
    assert len(catalog.regions()) > 40


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_row_has_a_source_and_a_date(provider: str) -> None:
    for row in shipped().rows:
        if row.provider == provider:
            assert price_lists()[row.price_list].source.startswith("https://")
            assert date.fromisoformat(row.dated) < DAY


@pytest.mark.quiet
def test_loading_is_quick() -> None:
    def load() -> float:
        shipped.cache_clear()
        price_lists.cache_clear()
        began = time.process_time()
        Library().stock(DAY)
        return time.process_time() - began

    assert min(load() for _ in range(5)) < 0.100


def test_nothing_is_read_before_somebody_asks() -> None:
    code = (
        "import crucible.catalog as c, crucible.catalog.store as l, crucible.catalog.lists as p; "
        "c.Library(); print(l.shipped.cache_info().currsize + p.price_lists.cache_info().currsize)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60).strip() == "0"


def test_the_same_day_is_answered_from_memory() -> None:
    library = Library()
    assert library.stock(DAY) is library.stock(DAY)
    assert library.stock(DAY) is not library.stock(date(2025, 10, 2))


def test_a_stale_catalog_says_how_old_it_is() -> None:
    stock = Library().stock(date(2026, 11, 17))
    assert stock.oldest_days is not None
    assert stock.oldest_days > 600
    assert {finding.rule for finding in stock.findings} == {Rule.OLD}


def test_a_catalog_of_the_far_future_offers_nothing_and_says_why() -> None:
    stock = Library().stock(date(2036, 1, 1))
    assert len(stock.catalog) == 0
    assert stock.oldest is None
    assert {finding.rule for finding in stock.refused} == {Rule.STALE}


def test_refreshed_prices_come_before_shipped_ones(tmp_path: Path) -> None:
    library = Library(tmp_path / "catalog")
    assert rate(library) == usd(0.526)
    library.keep("aws", [make_row(on_demand=0.5, dated="2025-09-30")])
    assert rate(library) == usd(0.5)
    other = Need(regions=("us-east-1",), instance_type="g4dn.2xlarge", markets=(Market.ON_DEMAND,))
    assert rate(library, other) == usd(0.752)
    assert rate(Library(tmp_path / "catalog")) == usd(0.5), "another process reads them too"


def test_a_refresh_of_one_market_leaves_the_others(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.keep("aws", [make_row(on_demand=None, spot=0.2, dated="2025-09-30")])
    offers = library.stock(DAY).catalog.offers(
        Need(providers=("aws",), regions=("us-east-1",), instance_type="g4dn.xlarge")
    )
    found = {(offer.market, offer.tariff.commitment_years): (offer.rate, offer.dated) for offer in offers}
    assert found[Market.SPOT, 0] == (usd(0.2), "2025-09-30")
    assert found[Market.ON_DEMAND, 0] == (usd(0.526), "2025-09-01")


def test_a_refused_refresh_hides_nothing(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.keep("aws", [make_row(on_demand=52.6, dated="2025-09-30"), make_row(region="eu-west-1", on_demand=0)])
    assert rate(library) == usd(0.526)
    assert {finding.rule for finding in library.stock(DAY).refused} == {
        Rule.GPU_OUTLIER,
        Rule.REGION_OUTLIER,
        Rule.ZERO,
    }


@pytest.mark.parametrize("text", ["", "garbage", "\x00\xff", "region,instance_type\nx,y\n"])
def test_a_broken_file_hides_nothing_and_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "aws.csv").write_text(text, encoding="utf-8")
    library = Library(tmp_path)
    assert rate(library) == usd(0.526)
    assert library.stock(DAY).refused[0].rule is Rule.UNREADABLE


def test_keeping_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="no folder"):
        Library().keep("aws", [make_row()])
    (tmp_path / "file").touch()
    with pytest.raises(Trouble, match="cannot be written"):
        Library(tmp_path / "file").keep("aws", [make_row()])


def test_keeping_leaves_no_other_file(tmp_path: Path) -> None:
    Library(tmp_path).keep("aws", [make_row()])
    assert [path.name for path in tmp_path.iterdir()] == ["aws.csv"]
    assert [row.key for row in Library(tmp_path).refreshed("aws")] == [make_row().key]
    assert Library(tmp_path).refreshed("gcp") == ()


def test_a_spot_price_that_on_demand_fell_below_is_refused() -> None:
    base = ParsedRows((make_row(spot=0.4),))
    over = ParsedRows((make_row(on_demand=0.3, dated="2025-09-30", origin="over"),))
    stock = make_stock(base, over, DAY)
    assert [offer.rate for offer in stock.catalog.offers()] == [usd(0.3)]
    assert [finding.rule for finding in stock.refused] == [Rule.SPOT_ABOVE_ON_DEMAND]


def test_a_folder_in_the_place_of_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "aws.csv").mkdir()
    library = Library(tmp_path)
    assert rate(library) == usd(0.526)
    assert library.stock(DAY).refused[0].rule is Rule.UNREADABLE


def test_renewing_keeps_what_was_renewed_before_and_is_not_renewed_now(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.renew("aws", [make_row(on_demand=0.5, spot=0.2, dated="2025-09-30")], DAY)
    refused = library.renew(
        "aws", [make_row(on_demand=0.51, dated="2025-10-01"), make_row(region="eu-west-1", on_demand=50.0)], DAY
    )
    assert {finding.rule for finding in refused} == {Rule.GPU_OUTLIER, Rule.REGION_OUTLIER}
    kept = {(column, price) for row in library.refreshed("aws") for column, price in row.prices()}
    assert kept == {("on_demand", usd(0.51)), ("spot", usd(0.2))}


def test_nothing_good_is_not_kept(tmp_path: Path) -> None:
    library = Library(tmp_path)
    assert library.renew("aws", [make_row(on_demand=0)], DAY)
    assert list(tmp_path.iterdir()) == []
