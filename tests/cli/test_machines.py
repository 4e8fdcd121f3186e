"""`crucible machines`: list, terminate, orphans."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Cli
from tests.client.fake_server import JOB, FakeServer, job_view

pytestmark = pytest.mark.enable_socket

MACHINE = "mch-01hzzzzzzzzzzzzzzzzzccc333"
ORPHAN = {
    "backend": "rehearsal",
    "machine": None,
    "native_id": "i-0abc",
    "region": "simulated-east",
    "why": "no machine of ours has this id",
}


@pytest.fixture(autouse=True)
def some(server: FakeServer) -> None:
    server.machines = [
        {
            "id": MACHINE,
            "short": "mch-ccc333",
            "state": "up",
            "backend": "rehearsal",
            "owner": "attempt:att-1",
            "instance_type": "sim.large",
            "region": "simulated-east",
            "market": "spot",
            "native_id": "i-0def",
            "simulated": True,
            "bills": True,
            "rate_micros_per_hour": 120_000,
            "cost_micros": 3_000,
            "created_at": "2026-11-15T10:00:00.000Z",
        },
        {"id": "mch-2", "state": "gone"},
    ]
    server.jobs[JOB] = job_view(machine=MACHINE)


def test_they_are_listed_with_what_they_cost(cli: Cli) -> None:
    _, line = cli("machines").out.splitlines()
    for word in ("mch-ccc333", "rehearsal (simulated)", "up, billing", "sim.large", "spot", "$0.12/h", "$0.0030"):
        assert word in line
    assert cli("machines", "list").out == cli("machines").out
    assert cli("machines", "-q").out == f"{MACHINE}\n"
    assert [item["state"] for item in cli("machines", "--all", "--json").json["items"]] == ["up", "gone"]


def test_options_stand_before_or_after_the_name_of_the_command(cli: Cli, server: FakeServer) -> None:
    server.orphans = [ORPHAN]
    assert cli("machines", "--json", "orphans").json == cli("machines", "orphans", "--json").json
    assert cli("--json", "machines", "orphans").json["items"][0]["native_id"] == "i-0abc"
    assert cli("machines", "--server", server.url, "orphans", "-q").out == "i-0abc\n"


def test_ending_one_is_asked_about_and_says_what_runs_there(cli: Cli, server: FakeServer) -> None:
    ran = cli("machines", "terminate", "ccc333")
    assert ran.code == 2
    assert "mch-ccc333 (rehearsal sim.large simulated-east, up): job-abc123 runs there." in ran.err
    assert "--yes" in ran.err
    assert server.bodies == []


def test_one_is_ended(cli: Cli, server: FakeServer) -> None:
    ran = cli("machines", "terminate", "ccc333", "--yes")
    assert ran.code == 0
    assert "mch-ccc333 is being ended." in ran.err
    assert server.bodies == [(f"/api/v1/machines/{MACHINE}/terminate", None)]
    assert cli("machines", "terminate", "i-0def", "--yes", "--json").json["state"] == "releasing"


def test_an_orphan_is_ended_by_the_providers_name(cli: Cli, server: FakeServer) -> None:
    server.orphans = [ORPHAN]
    ran = cli("machines", "terminate", "i-0abc", "--yes")
    assert ran.code == 0
    assert "i-0abc (rehearsal in simulated-east) is an orphan: no machine of ours has this id." in ran.err
    assert server.bodies == [("/api/v1/machines/i-0abc/terminate", None)]


def test_what_is_not_known_is_not_ended(cli: Cli, server: FakeServer) -> None:
    ran = cli("machines", "terminate", "nosuch", "--yes")
    assert (ran.code, "crucible machines" in ran.err) == (3, True)
    assert cli("machines", "terminate").code == 2


def test_orphans_are_no_failure(cli: Cli, server: FakeServer) -> None:
    ran = cli("machines", "orphans")
    assert (ran.code, ran.out) == (0, "")
    assert "There are no orphans" in ran.err
    server.orphans = [ORPHAN]
    ran = cli("machines", "orphans")
    assert ran.code == 0
    assert "no machine of ours has this id" in ran.out
    assert "crucible machines terminate" in ran.err


def test_a_mistyped_command_is_told_with_the_nearest(cli: Cli) -> None:
    ran = cli("machines", "terminat", "x")
    assert (ran.code, "Did you mean 'terminate'" in ran.err) == (2, True)
    assert cli("db").code == 2
    assert "terminate" in cli("machines", "--help").out
    assert "--yes" in cli("machines", "terminate", "--help").out
