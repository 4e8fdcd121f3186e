"""`crucible catalog audit` and `refresh`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.catalog.builders import make_row
from tests.catalog.prices import make_prices
from tests.catalog.refresh.providers import FakeLambda, lambda_types
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer

from crucible.catalog import Library

pytestmark = pytest.mark.enable_socket


@pytest.fixture(autouse=True)
def unreachable(real: RealServer) -> None:
    """No provider answers the server."""
    real.app.control.catalog = make_prices()


def test_the_audit_of_what_is_shipped_has_warnings_alone(cli: Cli) -> None:
    ran = cli("catalog", "audit")
    assert ran.code == 0
    assert "old (warning)" in ran.out
    assert "0 are rejected" in ran.err


@pytest.fixture
def wrong_prices(real: RealServer, tmp_path: Path) -> None:
    """A server whose refreshed prices are wrong."""
    Library(tmp_path / "prices").keep("aws", [make_row(on_demand=0), make_row(region="eu-west-1", on_demand=9.0)])
    real.app.control.catalog = make_prices(tmp_path / "prices")


@pytest.mark.usefixtures("wrong_prices")
def test_what_is_refused_is_named_with_its_rule_and_fails_the_command(cli: Cli) -> None:
    ran = cli("catalog", "audit")
    assert ran.code == 1
    first = ran.out.splitlines()[1]
    for word in ("gpu_outlier", "aws eu-west-1 g4dn.xlarge", "the median is", "Check the price"):
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
def lambda_prices(real: RealServer, tmp_path: Path) -> None:
    """A server whose providers all answer as Lambda does."""
    real.app.control.catalog = make_prices(tmp_path / "prices", asked=FakeLambda(lambda_types(1.1)))


@pytest.mark.usefixtures("lambda_prices")
def test_one_provider_is_refreshed(cli: Cli) -> None:
    ran = cli("catalog", "refresh", "lambda")
    assert (ran.code, ran.out) == (0, "lambda: 42 prices of 13 regions, 42 changed\n")
    assert cli("catalog", "refresh", "lambda", "--json").json["changed"] == 0
    offer = cli("catalog", "list", "--provider", "lambda", "--limit", "1", "--json").json["items"][0]
    assert offer["dated"] == "2026-06-01"


@pytest.mark.usefixtures("lambda_prices")
def test_of_all_one_that_fails_stops_none_of_the_others(cli: Cli) -> None:
    ran = cli("catalog", "refresh")
    assert ran.code == 9
    assert ran.out.endswith("lambda: 42 prices of 13 regions, 42 changed\n")
    for provider in ("aws", "azure", "gcp"):
        assert f"The prices of {provider} were not refreshed." in ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("modal",), 2, "no price interface"),
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


def test_a_table_that_is_not_there_is_told(cli: Cli) -> None:
    ran = cli("catalog", "audit", "--against", "/no/such/file")
    assert (ran.code, ran.out) == (2, "")
    assert "cannot be read" in ran.err


def test_many_findings_are_shortened_for_people_alone(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    rows = [make_row(instance_type=f"x{number}", on_demand=0, origin=str(number)) for number in range(40)]
    Library(tmp_path / "prices").keep("aws", rows)
    real.app.control.catalog = make_prices(tmp_path / "prices")
    ran = cli("catalog", "audit")
    assert len(ran.out.splitlines()) == 21
    assert "--json lists all" in ran.err
    assert "40 are rejected" in ran.err
    assert cli("catalog", "audit", "--json").json["refused"] == 40
    assert cli("catalog", "audit", "-q").out == ""
