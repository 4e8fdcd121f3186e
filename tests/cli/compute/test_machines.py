"""`crucible machines`: list, terminate, orphans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer, RunningJob
from tests.control.clouds import FakeCloud
from tests.control.fakes import DEPLOYMENT, FakeBackend, Made
from tests.control.harness import new_id

from crucible.core.errors import Unreachable
from crucible.core.ids import Prefix

pytestmark = pytest.mark.enable_socket

STRANGER = new_id(Prefix.MACHINE, 99)
ORPHAN = f"i-{STRANGER}"


@pytest.fixture
def cloud() -> FakeCloud:
    return FakeCloud("rehearsal")


@pytest.fixture
def backends(cloud: FakeCloud) -> tuple[FakeBackend, ...]:
    return (cloud,)


@pytest.fixture
def job(real: RealServer) -> RunningJob:
    """A job on a machine of its own, beside a machine that is gone."""
    real.complete(spec={"backend": "rehearsal"})
    real.run(real.perform_effects)
    return real.start(backend="rehearsal", market="spot")


@pytest.fixture
def machine(real: RealServer, job: RunningJob) -> str:
    return str(real.view(job).machine)


def test_they_are_listed_with_what_they_cost(cli: Cli, real: RealServer, machine: str) -> None:
    real.harness.clock.move(60)
    _, line = cli("machines").out.splitlines()
    for word in (machine[-6:], "rehearsal (simulated)", "up, billing", "sim.small", "spot", "$0.30/h", "$0.0050"):
        assert word in line
    assert cli("machines", "list").out == cli("machines").out
    assert cli("machines", "-q").out == f"{machine}\n"
    assert [item["state"] for item in cli("machines", "--all", "--json").json["items"]] == ["up", "gone"]


def test_options_stand_before_or_after_the_name_of_the_command(cli: Cli, real: RealServer, cloud: FakeCloud) -> None:
    cloud.add(STRANGER)
    assert cli("machines", "--json", "orphans").json == cli("machines", "orphans", "--json").json
    assert cli("--json", "machines", "orphans").json["items"][0]["native_id"] == ORPHAN
    assert cli("machines", "--server", real.url, "orphans", "-q").out == f"{ORPHAN}\n"


def test_ending_one_is_asked_about_and_says_what_runs_there(
    cli: Cli, real: RealServer, job: RunningJob, machine: str
) -> None:
    ran = cli("machines", "terminate", machine[-6:])
    assert ran.code == 2
    assert f"mch-{machine[-6:]} (rehearsal sim.small north-1, up): {job.short} runs on it." in ran.err
    assert "--yes" in ran.err
    assert real.sent == []


def test_one_is_ended(cli: Cli, real: RealServer, machine: str) -> None:
    ran = cli("machines", "terminate", machine[-6:], "--yes")
    assert ran.code == 0
    assert f"mch-{machine[-6:]} is being terminated." in ran.err
    assert real.sent == [(f"/api/v1/machines/{machine}/terminate", None)]
    assert cli("machines", "terminate", f"i-{machine}", "--yes", "--json").json["state"] == "releasing"


def test_one_is_declared_lost(cli: Cli, real: RealServer, cloud: FakeCloud, machine: str) -> None:
    refused = cli("machines", "terminate", machine, "--lost", "--yes")
    assert refused.code != 0
    assert "is not lost: rehearsal answers" in refused.err
    cloud.down = Unreachable("No answer.")
    ran = cli("machines", "terminate", machine, "--lost", "--yes")
    assert ran.code == 0
    assert "run twice if it still runs" in ran.err
    assert f"mch-{machine[-6:]} is gone." in ran.err


def test_an_orphan_is_ended_by_the_providers_name(cli: Cli, real: RealServer, cloud: FakeCloud) -> None:
    cloud.add(STRANGER)
    ran = cli("machines", "terminate", ORPHAN, "--yes")
    assert ran.code == 0
    assert f"{ORPHAN} (rehearsal in here) is an orphan: unknown to this deployment's database." in ran.err
    assert real.sent == [(f"/api/v1/machines/{ORPHAN}/terminate", None)]
    assert [ref.machine for ref in cloud.terminated] == [STRANGER]


def test_what_is_not_known_is_not_ended(cli: Cli, real: RealServer) -> None:
    ran = cli("machines", "terminate", "nosuch", "--yes")
    assert (ran.code, "crucible machines" in ran.err) == (3, True)
    assert cli("machines", "terminate").code == 2


def test_an_orphan_without_an_id_of_ours_is_ended(cli: Cli, cloud: FakeCloud, machine: str) -> None:
    nameless = replace(cloud.made[machine].ref, machine="", native_id="i-nameless")
    cloud.made["nameless"] = Made(nameless, DEPLOYMENT)
    ended = cli("machines", "terminate", "i-nameless", "--yes", "--json").json
    assert (ended["native_id"], ended["machine"], ended["short"]) == ("i-nameless", None, None)


def test_orphans_are_no_failure(cli: Cli, real: RealServer, cloud: FakeCloud) -> None:
    ran = cli("machines", "orphans")
    assert (ran.code, ran.out) == (0, "")
    assert "There are no orphans" in ran.err
    cloud.add(STRANGER)
    ran = cli("machines", "orphans")
    assert ran.code == 0
    assert "unknown to this deployment's database" in ran.out
    assert "crucible machines terminate" in ran.err


def test_a_mistyped_command_is_told_with_the_nearest(cli: Cli) -> None:
    ran = cli("machines", "terminat", "x")
    assert (ran.code, "Did you mean 'terminate'" in ran.err) == (2, True)
    assert cli("db").code == 2
    assert "terminate" in cli("machines", "--help").out
    assert "--yes" in cli("machines", "terminate", "--help").out
