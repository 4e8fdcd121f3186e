"""`crucible catalog`: list, show, gpus, audit, refresh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.catalog.making import make_row
from tests.catalog.refresh.providers import FakeLambda, lambda_types
from tests.catalog.serving import make_prices
from tests.cli.conftest import Cli
from tests.client.fake_server import TOKEN, FakeServer, serving

from crucible.catalog import Library

pytestmark = [pytest.mark.enable_socket, pytest.mark.usefixtures("server")]


def test_offers_are_listed_cheapest_first(cli: Cli) -> None:
    ran = cli("catalog", "list", "--gpu", "T4", "--provider", "aws", "--market", "on-demand", "--limit", "2")
    head, first, second = ran.out.splitlines()
    assert head.split()[:4] == ["PROVIDER", "REGION", "TYPE", "MARKET"]
    for word in ("aws", "us-east-1", "g4dn.xlarge", "on-demand", "1 × T4", "16 GiB", "$0.526/h", "2025-09-01", "no"):
        assert word in first
    assert "us-east-2" in second
    assert "--all shows the others" in ran.err
    assert "days old" in ran.err
    assert "Not runnable: aws is not connected" in ran.err


def test_the_list_is_what_the_command_does_without_a_name(cli: Cli) -> None:
    assert (
        cli("catalog", "--gpu", "T4", "--limit", "3").out == cli("catalog", "list", "--gpu", "T4", "--limit", "3").out
    )


def test_json_has_all_fields_and_how_old_it_is(cli: Cli) -> None:
    found = cli("catalog", "list", "--gpu", "T4", "--region", "us-east-1", "--market", "spot", "--json").json
    assert found["oldest_days"] > 0
    assert found["total"] == len(found["items"])
    offer = found["items"][0]
    assert (offer["market"], offer["runnable"], offer["capacity"]["gpu_name"]) == ("spot", False, "T4")
    assert offer["tariff"]["source"].startswith("https://")


def test_all_goes_beyond_one_page(cli: Cli) -> None:
    found = cli("catalog", "list", "--all", "--json").json
    assert len(found["items"]) == found["total"] > 1500
    assert len(cli("catalog", "list", "--limit", "501", "--json").json["items"]) == 501
    assert len(cli("catalog", "list", "--limit", "7", "-q").out.splitlines()) == 7


def test_a_price_is_a_bound(cli: Cli) -> None:
    found = cli("catalog", "list", "--gpus", "1", "--max-price", "0.5", "--all", "--json").json["items"]
    assert found
    assert all(offer["rate_micros_per_hour"] <= 500_000 for offer in found)
    assert cli("catalog", "list", "--max-price", "0", "--json").json["items"] == []


def test_nothing_is_told_in_words(cli: Cli) -> None:
    ran = cli("catalog", "list", "--gpus", "64")
    assert (ran.code, ran.out) == (0, "")
    assert "Nothing in the catalog fits." in ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("list", "--gpu", "A1000"), 2, "Did you mean 'A100'?"),
        (("list", "--provider", "amazon"), 2, "There is no provider 'amazon'."),
        (("list", "--region", "us-east-11"), 2, "Did you mean 'us-east-1'?"),
        (("list", "--market", "weekly"), 2, "--market is not right"),
        (("list", "--gpu-memory", "much"), 2, "512Mi"),
        (("list", "--max-price", "-1"), 2, "--max-price is not right"),
        (("show", "g4dn.xlrge"), 3, "Did you mean 'g4dn.xlarge'?"),
        (("audit", "--against", "/no/such/file"), 2, "cannot be read"),
    ],
)
def test_mistakes_are_told_with_a_fix(cli: Cli, words: tuple[str, ...], code: int, said: str) -> None:
    ran = cli("catalog", *words)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert "Fix:" in ran.err


def test_a_type_is_shown_with_its_terms(cli: Cli) -> None:
    ran = cli("catalog", "show", "g4dn.xlarge")
    for line in (
        "Size       4 CPUs, 16 GiB",
        "GPUs       1 × T4, 16 GiB each, 320 GB/s",
        "Billed     by 1s, at least 1m 00s",
        "Egress     $0.09/GB",
        "Runnable   no: aws is not connected",
    ):
        assert line in ran.out
    assert "reserved 3y" in ran.out
    assert cli("catalog", "show", "g4dn.xlarge", "--json").json["gpu"]["name"] == "T4"


def test_gpus_need_no_server(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_SERVER", "http://127.0.0.1:9")
    ran = cli("catalog", "gpus")
    line = next(line for line in ran.out.splitlines() if line.startswith("A100-80GB-SXM"))
    for word in ("80 GiB", "2039 GB/s", "312", "8.0", "A100, A100-80GB"):
        assert word in line
    assert "T4" in cli("catalog", "gpus", "-q").out.splitlines()
    assert cli("catalog", "gpus", "--json").json["items"][0]["name"] == "K80"


def test_the_audit_of_what_is_shipped_has_warnings_alone(cli: Cli) -> None:
    ran = cli("catalog", "audit")
    assert ran.code == 0
    assert "old (warning)" in ran.out
    assert "0 are refused" in ran.err


@pytest.fixture
def spoilt(server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server whose refreshed prices are wrong."""
    Library(tmp_path / "prices").keep("aws", [make_row(on_demand=0), make_row(region="eu-west-1", on_demand=9.0)])
    with serving(FakeServer(prices=make_prices(tmp_path / "prices"))) as fake:
        monkeypatch.setenv("CRUCIBLE_SERVER", fake.url)
        monkeypatch.setenv("CRUCIBLE_TOKEN", TOKEN)
        yield


@pytest.mark.usefixtures("spoilt")
def test_what_is_refused_is_named_with_its_rule_and_fails_the_command(cli: Cli) -> None:
    ran = cli("catalog", "audit")
    assert ran.code == 1
    first = ran.out.splitlines()[1]
    for word in ("gpu_outlier", "aws eu-west-1 g4dn.xlarge", "the median is", "Check it"):
        assert word in ran.out
    assert "(warning)" not in first
    rules = {item["rule"] for item in cli("catalog", "audit", "--json").json["items"] if item["refused"]}
    assert rules == {"zero", "gpu_outlier", "region_outlier"}


def test_another_table_is_compared(cli: Cli, tmp_path: Path) -> None:
    table = tmp_path / "other.csv"
    table.write_text("InstanceType,Region,Price,SpotPrice\ng4dn.xlarge,us-east-1,0.6,0.3\np3.2xlarge,us-east-1,3.06,\n")
    ran = cli("catalog", "audit", "--against", str(table))
    assert ran.code == 0
    assert "In both    2 (0% of ours): 1 within 2%, 1 within 10%" in ran.out
    assert "g4dn.xlarge us-east-1" in ran.out
    assert "-12.3%" in ran.out
    assert "2 differ by more than 10%." in ran.err
    found = cli("catalog", "audit", "--against", str(table), "--over", "50", "--json").json
    assert (found["provider"], found["differences"]) == ("aws", [])


@pytest.fixture
def asked(server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server whose providers all answer as Lambda does."""
    prices = make_prices(tmp_path / "prices", asked=FakeLambda(lambda_types(1.1)))
    with serving(FakeServer(prices=prices)) as fake:
        monkeypatch.setenv("CRUCIBLE_SERVER", fake.url)
        yield


@pytest.mark.usefixtures("asked")
def test_one_provider_is_refreshed(cli: Cli) -> None:
    ran = cli("catalog", "refresh", "lambda")
    assert (ran.code, ran.out) == (0, "lambda: 42 prices of 13 regions, 42 changed\n")
    assert cli("catalog", "refresh", "lambda", "--json").json["changed"] == 0
    offer = cli("catalog", "list", "--provider", "lambda", "--limit", "1", "--json").json["items"][0]
    assert offer["dated"] == "2026-06-01"


@pytest.mark.usefixtures("asked")
def test_of_all_one_that_fails_stops_none_of_the_others(cli: Cli) -> None:
    ran = cli("catalog", "refresh")
    assert ran.code == 9
    assert ran.out.endswith("lambda: 42 prices of 13 regions, 42 changed\n")
    for provider in ("aws", "azure", "gcp"):
        assert f"The prices of {provider} were not refreshed." in ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("modal",), 2, "no interface for prices"),
        (("amazon",), 2, "There is no provider 'amazon'."),
        (("azure", "--region", "mars"), 2, "There is no region 'mars'."),
        (("azure",), 9, "The old ones stay in use."),
    ],
)
def test_who_cannot_be_asked_says_why(cli: Cli, words: tuple[str, ...], code: int, said: str) -> None:
    ran = cli("catalog", "refresh", *words)
    assert ran.code == code
    assert "changed" not in ran.out
    assert said in ran.err
