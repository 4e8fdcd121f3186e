"""`crucible catalog` at a real terminal, over a real server and the prices that are shipped."""

from __future__ import annotations

import json

from tests.catalog.builders import make_row
from tests.e2e.terminal import Terminal

from crucible.catalog import Library


def listed(terminal: Terminal, *filters: str) -> list[dict[str, object]]:
    items: list[dict[str, object]] = json.loads(terminal.ok("catalog", "list", *filters, "--json"))["items"]
    return items


def test_what_can_be_rented_is_listed_and_says_what_connects_it(terminal: Terminal) -> None:
    done = terminal.run("catalog", "list", "--gpu", "A100", "--max-price", "5", "--limit", "5")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6
    assert "days old" in done.stderr
    assert "Not connected, and no command connects" in done.stderr


def test_documented_prices(terminal: Terminal) -> None:
    for kind, price in (("g4dn.xlarge", 526_000), ("g4dn.2xlarge", 752_000), ("p3.2xlarge", 3_060_000)):
        shown = json.loads(terminal.ok("catalog", "show", kind, "--json"))["items"]
        found = [one for one in shown if (one["region"], one["market"]) == ("us-east-1", "on_demand")]
        assert [one["rate_micros_per_hour"] for one in found] == [price]
        assert found[0]["runnable"] is False


def test_who_cannot_be_asked_for_prices_says_so(terminal: Terminal) -> None:
    done = terminal.run("catalog", "refresh", "colab")
    assert (done.returncode, "no price interface" in done.stderr) == (2, True)


def test_prices_in_the_state_folder_are_used_and_judged_while_they_are_there(terminal: Terminal) -> None:
    filters = ("--region", "us-east-1", "--gpu", "T4", "--market", "on-demand", "--limit", "1")
    library = Library(terminal.home / "catalog")
    library.keep("aws", [make_row(on_demand=0.49, dated="2025-09-30"), make_row(region="us-west-2", on_demand=0)])
    try:
        assert listed(terminal, *filters)[0]["rate_micros_per_hour"] == 490_000
        audit = terminal.run("catalog", "audit")
        assert audit.returncode == 1
        assert "aws us-west-2 g4dn.xlarge" in audit.stdout
    finally:
        (terminal.home / "catalog" / "aws.csv").unlink()
    assert listed(terminal, *filters)[0]["rate_micros_per_hour"] == 526_000
