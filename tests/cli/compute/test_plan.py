"""The plan on a screen, and what `run` does with it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.catalog.builders import make_row
from tests.catalog.prices import OwnPrices
from tests.cli.conftest import Cli
from tests.client.programs import training
from tests.client.real_server import RealServer
from tests.control.clouds import FakeCloud
from tests.control.fakes import FakeBackend

from crucible.core.compute.resources import Capacity, GiB

pytestmark = pytest.mark.enable_socket

BARE = Capacity(cpus=1, memory_bytes=8 * GiB)
T4 = Capacity(cpus=4, memory_bytes=16 * GiB, gpus=(0,), gpu_memory_bytes=16 * GiB, gpu_name="T4")
LAMBDA = {"provider": "lambda", "price_list": "lambda-cloud"}
PRICES = [
    *(make_row(**LAMBDA, instance_type="t4", region=region) for region in ("us-east-1", "us-west-1", "us-west-2")),
    make_row(**LAMBDA, instance_type="a100", gpu="A100-40GB-SXM", on_demand=1.29),
    make_row(provider="modal", instance_type="T4", region="any", price_list="modal", on_demand=0.59),
]
GPU = training(300, device="cuda")
LONG = training(30_000, device="cuda")
ENDLESS = "import torch\ntorch.zeros(5).cuda()\n"
"""Nobody can say how long it takes."""


@pytest.fixture
def backends() -> tuple[FakeBackend, ...]:
    """One that bills, and one whose money is play money."""
    real = replace(FakeCloud.capabilities, simulated=False)
    cloud = FakeCloud(capabilities=real, capacity_override=T4, rates={"north": 526_000})
    return cloud, FakeCloud("play", capacity_override=T4, rates={"north": 526_000})


@pytest.fixture
def real(real: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealServer:
    """This computer has no GPU, and the catalog only what these tests put there."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    real.harness.backend.capacity = BARE
    real.run(real.harness.offers.refresh)
    real.app.control.catalog._library = OwnPrices(PRICES)
    (tmp_path / "train.py").write_text(GPU)
    return real


def asked(real: RealServer) -> list[Any]:
    return [body for path, body in real.sent if path == "/api/v1/plan"]


def test_what_it_needs_stands_above_what_it_costs(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import helper\n{training(None, device='cuda')}")
    (tmp_path / "helper.py").write_text("x = 1\ny =\n")
    ran = cli("plan", "train.py", "--optimize", "speed")
    assert ran.code == 0
    assert "GPU:        required (high confidence, train.py:6)" in ran.err
    assert "Runs:       about 6m 22s on one T4 (low confidence, assumed)\n" in ran.err
    assert "Note: helper.py:2 cannot be parsed" in ran.err
    assert "2 more offers" in ran.err
    assert "+ billed by the second\n- 16 GiB per GPU, more than twice what it needs\n- its runtime is" in ran.err
    assert "○ Not connected, and no command connects modal and lambda yet: " in ran.err
    assert ran.err.endswith("Nothing was submitted.\n")
    ran = cli("plan", "train.py", "--optimize", "speed", "--gpu", "t4", "--hours", "2.5", "--max-cost", "20")
    first, second, third, *_ = ran.out.splitlines()
    assert first.split()[:2] == ["BACKEND", "TYPE"]
    assert second.split()[:4] == ["→", "cloud", "sim.small", "north"]
    assert "$1.32  $0.53/h  2h 30m   available" in second
    assert third.split()[:2] == ["○", "modal"]
    _, ask = asked(real)
    assert (ask["optimize"], ask["hours"], ask["gpu_types"], ask["max_cost_usd"]) == ("speed", 2.5, ["T4"], 20.0)
    assert ask["files"]["train.py"].startswith("import helper\n")
    assert not real.specs


def test_the_time_of_what_uses_no_gpu_is_told_for_processors(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(training(device="cpu"))
    ran = cli("plan", "train.py")
    assert re.search(r"Runs:       about \d+m \d\ds on 8 processors \((low|medium)", ran.err)


def test_what_is_not_known_of_what_it_needs_is_asked_for(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text('import pandas\nprint(pandas.read_csv("sales.csv").sum())\n')
    ran = cli("plan", "train.py")
    assert "Not known: How large is sales.csv, which is read whole?\n" in ran.err


def test_as_json_it_is_the_servers_answer(cli: Cli, real: RealServer) -> None:
    ran = cli("plan", "train.py", "--json")
    assert ran.json["profile"]["gpu"] == "required"
    assert ran.json["offers"][0]["backend"] == "cloud"


def test_why_connected_places_are_none_and_how_many_others(cli: Cli, real: RealServer) -> None:
    ran = cli("plan", "train.py", "--gpu", "A100")
    assert ran.code == 6
    assert "1 offer of local does not fit: it has no GPU, not A100." in ran.err
    assert "2 offers of cloud do not fit: it has T4, not A100." in ran.err
    assert "6 offers of other providers do not fit; --json says why." in ran.err
    assert "No connected backend can run it: it has T4, not A100. It would fit on lambda.\n" in ran.err


def test_a_job_that_only_others_could_hold_ends_with_the_plan_and_6(cli: Cli, real: RealServer) -> None:
    ran = cli("run", "train.py", "--gpu", "A100")
    assert ran.code == 6
    assert ran.out == ""
    assert re.search(r"○ lambda a100 in us-east-1: \$\d\.\d\d in all, done in \d+m", ran.err)
    assert "GPU:        required (high confidence, train.py:5)" in ran.err
    assert "Fix: Not connected, and no command connects lambda yet" in ran.err
    assert not real.specs


def test_run_goes_where_the_plan_says(cli: Cli, real: RealServer) -> None:
    ran = cli("run", "train.py", "--detach")
    assert ran.code == 0
    assert re.search(r"Plan: cloud, \$0\.17 in all, done in about 19m \d\ds\.", ran.err)
    assert (real.specs[0]["backend"], real.specs[0]["resources"]["gpus"]) == ("cloud", 1)


def test_what_it_may_cost_goes_with_the_job_and_says_when_it_ends(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ENDLESS)
    ran = cli("run", "train.py", "--detach", "--max-cost", "0.1", "--backend", "cloud")
    assert ran.code == 0
    assert "Plan: cloud, $0.53/h, ended after 10m 54s, which its max_cost_usd buys." in ran.err
    assert real.specs[0]["max_cost_usd"] == 0.1


def test_a_job_that_only_costs_too_much_ends_with_7(cli: Cli, real: RealServer) -> None:
    ran = cli("run", "train.py", "--max-cost", "0", "--backend", "cloud")
    assert (ran.code, real.specs) == (7, [])
    assert re.search(r"it would cost \$\S+ in total, more than \$0\.00", ran.err)
    assert "Fix: Raise max_cost_usd (--max-cost)" in ran.err
    assert cli("plan", "train.py", "--max-cost", "0").code == 7


def test_run_says_what_would_be_much_faster(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(training(30_000))
    ran = cli("run", "train.py", "--detach")
    assert "Plan: local, free, done in about 3d 15h." in ran.err
    assert "cloud sim.small would be done in 1d 7h, $16.79 in all" in ran.err
    assert real.specs[0]["backend"] is None


def test_run_asks_before_it_spends_more_than_the_setting(
    cli: Cli, real: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(LONG)
    ran = cli("run", "train.py", "--detach")
    assert ran.code == 2
    assert "It may cost $16.79 at cloud, more than $5" in ran.err
    assert "Add --yes" in ran.err
    assert not real.specs
    assert cli("run", "train.py", "--detach", "--yes").code == 0
    monkeypatch.setenv("CRUCIBLE_ASK_ABOVE", "20")
    assert cli("run", "train.py", "--detach").code == 0
    assert len(real.specs) == 2


def test_where_nobody_knows_how_long_the_most_it_can_cost_counts(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ENDLESS)
    assert "It may cost $12.63" in cli("run", "train.py", "--detach", "--backend", "cloud").err
    assert not real.specs
    assert cli("run", "train.py", "--detach", "--backend", "play").code == 0


def test_a_plan_on_spot_says_what_happens_without_a_spot_machine(cli: Cli, real: RealServer) -> None:
    waits = "If no spot machine is available, it waits for one; --spot-fallback lets it run on demand.\n"
    falls_back = "If no spot machine is available, it may run on demand: cloud sim.small in north, $0.17 in all.\n"
    for command in (("plan", "train.py"), ("run", "train.py", "--detach")):
        assert waits in cli(*command, "--backend", "cloud", "--spot").err
        assert falls_back in cli(*command, "--backend", "cloud", "--spot-fallback").err
        assert "spot machine" not in cli(*command, "--backend", "cloud").err
        assert "it waits for one" not in cli(*command, "--backend", "cloud,local", "--spot").err
    assert "--spot-fallback allows that" in cli("plan", "train.py", "--backend", "cloud", "--spot").err


def test_the_price_on_demand_is_confirmed_too(cli: Cli, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(training(15_000, device="cuda"))
    assert cli("run", "train.py", "--detach", "--backend", "cloud", "--spot").code == 0
    ran = cli("run", "train.py", "--detach", "--backend", "cloud", "--spot-fallback")
    assert ran.code == 2
    assert re.search(r"It may cost \$8\.\d\d at cloud, more than \$5", ran.err)
    assert cli("run", "train.py", "--detach", "--backend", "cloud", "--spot-fallback", "--yes").code == 0


def test_without_a_spot_machine_it_waits_or_runs_on_demand(cli: Cli, real: RealServer) -> None:
    cloud = real.harness.backends["cloud"]
    assert isinstance(cloud, FakeCloud)
    cloud.spot_sold_out = True
    real.run(real.harness.offers.refresh)
    ran = cli("run", "train.py", "--detach", "--backend", "cloud", "--spot")
    assert "It waits for spot; --spot-fallback would let it run on demand.\n" in ran.err
    assert ran.code == 0
    ran = cli("run", "train.py", "--detach", "--backend", "cloud", "--spot-fallback")
    assert "No spot machine can run it now, so it runs on demand.\n" in ran.err


def test_where_there_is_no_spot_at_all_the_fix_is_the_fallback(cli: Cli, real: RealServer) -> None:
    cloud = real.harness.backends["cloud"]
    assert isinstance(cloud, FakeCloud)
    cloud.no_spot = True
    real.run(real.harness.offers.refresh)
    ran = cli("run", "train.py", "--detach", "--backend", "cloud", "--spot")
    assert (ran.code, real.specs) == (6, [])
    assert "Fix: Add --spot-fallback.\n" in ran.err


def test_here_by_name_needs_no_plan(cli: Cli, real: RealServer) -> None:
    assert cli("run", "train.py", "--detach", "--backend", "local").code == 0
    assert not asked(real)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--optimize", "cheap"), "There is no objective 'cheap'"),
        (("--gpu", "A1000"), "There is no GPU type 'A1000'"),
        (("--deadline", "soon"), "--deadline: 'soon' is not a valid duration"),
        (("--hours", "-1"), "--hours"),
        (("--max-cost", "-1"), "--max-cost must"),
        (("--gpu", "A100", "--gpus", "0"), "--gpu A100 conflicts with --gpus 0."),
    ],
)
def test_what_cannot_be_asked(cli: Cli, real: RealServer, flags: tuple[str, ...], words: str) -> None:
    ran = cli("plan", "train.py", *flags)
    assert ran.code == 2
    assert words in ran.err
    assert not asked(real)


def test_a_backend_that_the_user_may_not_use_is_rejected_with_the_fix(
    cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("users", "add", "ada")
    cli("projects", "grant", "default", "ada", "member")
    token = cli("tokens", "create", "of-ada", "--user", "ada", "--json").json["token"]
    cloud = real.harness.backends["cloud"]
    cloud.capabilities = replace(cloud.capabilities, operators_only=True)
    real.run(real.harness.offers.refresh)
    monkeypatch.setenv("CRUCIBLE_TOKEN", token)
    why = "Jobs of the project 'default' may not run on 'cloud'."
    ran = cli("plan", "train.py", "--backend", "cloud")
    assert ran.code == 7
    assert f"No connected backend can run it: {why}" in ran.err
    assert "crucible backends connect cloud --project default" in ran.err
    refused = cli("run", "train.py", "--backend", "cloud", "--yes")
    assert refused.code == 7
    assert why in refused.err
    assert real.specs == []
