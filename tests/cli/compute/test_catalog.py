"""`crucible catalog`: list, show, gpus."""

from __future__ import annotations

import pytest
from tests.catalog.prices import make_prices
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer

pytestmark = pytest.mark.enable_socket


@pytest.fixture(autouse=True)
def shipped_prices(real: RealServer) -> None:
    """The server knows what is shipped, on a day of this test's own."""
    real.app.control.catalog = make_prices()


def test_offers_are_listed_cheapest_first(cli: Cli) -> None:
    ran = cli("catalog", "list", "--gpu", "T4", "--provider", "aws", "--market", "on-demand", "--limit", "2")
    head, first, second = ran.out.splitlines()
    assert head.split()[:4] == ["PROVIDER", "REGION", "TYPE", "MARKET"]
    for word in ("aws", "us-east-1", "g4dn.xlarge", "on-demand", "1 × T4", "16 GiB", "$0.526/h", "2025-09-01", "no"):
        assert word in first
    assert "us-east-2" in second
    assert "--all shows the rest" in ran.err
    assert "days old" in ran.err
    assert "○ Not connected, and no command connects aws yet: this version only compares prices" in ran.err


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
    assert "Nothing in the catalog matches." in ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("list", "--gpu", "A1000"), 2, "Did you mean 'A100'?"),
        (("list", "--provider", "amazon"), 2, "There is no provider 'amazon'."),
        (("list", "--region", "us-east-11"), 2, "Did you mean 'us-east-1'?"),
        (("list", "--market", "weekly"), 2, "--market is invalid"),
        (("list", "--gpu-memory", "much"), 2, "512Mi"),
        (("list", "--max-price", "-1"), 2, "--max-price is invalid"),
        (("show", "g4dn.xlrge"), 3, "Did you mean 'g4dn.xlarge'?"),
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
        "Runnable   no: Not connected, and no command connects aws yet",
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
