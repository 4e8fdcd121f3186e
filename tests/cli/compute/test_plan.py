"""The plan on a screen, and what `run` does with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.client.fake_server import FakeServer, plan_view, planned_offer

pytestmark = pytest.mark.enable_socket

PROFILE = {
    "frameworks": ["torch"],
    "gpu": "required",
    "gpu_memory_gb": 6.2,
    "runtime_hours": 2.5,
    "confidence": {"frameworks": "high", "gpu": "high", "gpu_memory_gb": "medium", "runtime_hours": "low"},
    "assumed": ["runtime_hours"],
    "evidence": {"gpu": [{"file": "train.py", "line": 12, "text": "x.cuda()"}]},
    "unknown": {"dataset": "What does it learn from?"},
    "notes": ["train.py, line 3 is no Python."],
}
T4 = {"cpus": 4, "memory_bytes": 16 * 2**30, "gpus": [0], "gpu_memory_bytes": 16 * 2**30, "gpu_name": "T4"}
CLOUD = planned_offer(
    "cloud",
    region="north",
    instance_type="g4",
    capacity=T4,
    rate_micros_per_hour=526_000,
    total_micros=7_500_000,
    eta_seconds=9_000.0,
    most_micros=13_000_000,
    fit="good: 5.8 of 16 GiB",
    pros=["billed by the second"],
    cons=["how long it takes there is a rough guess"],
)
AFAR = {**CLOUD, "backend": "lambda", "runnable": False, "why": "lambda is not connected. Connect it: crucible up"}
NEAR = {**AFAR, "backend": "modal", "why": "modal is not connected. Connect it: crucible up"}
HERE = planned_offer("local", eta_seconds=90_000.0)


@pytest.fixture(autouse=True)
def a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)


@pytest.fixture
def server(server: FakeServer) -> FakeServer:
    server.backends.append({"name": "cloud", "connected": True})
    return server


def plan(chosen: dict[str, Any] | None, *offers: dict[str, Any], **more: Any) -> dict[str, Any]:
    job = {"backend": chosen["backend"], "resources": {"gpus": 1}} if chosen else None
    shown = {"offers": list(offers), "offers_count": len(offers) + 3, "advice": "Recommended: GPU_SMALL."}
    return plan_view(profile=PROFILE, chosen=chosen, job=job, **shown, **more)


def test_what_it_needs_stands_above_what_it_costs(cli: Cli, server: FakeServer) -> None:
    server.plan = plan(CLOUD, CLOUD, AFAR, NEAR)
    ran = cli("plan", "train.py", "--optimize", "speed", "--gpu", "t4", "--hours", "2", "--max-cost", "0")
    assert ran.code == 0
    assert "GPU:        required (high confidence, train.py:12)" in ran.err
    assert "Runs:       about 2h 30m on one T4 (low confidence, assumed)" in ran.err
    assert "Note: train.py, line 3 is no Python." in ran.err
    assert "3 more offers" in ran.err
    assert "+ billed by the second\n- how long it takes there is a rough guess\n" in ran.err
    assert "○ lambda and modal are not connected. Connect them: crucible up." in ran.err
    assert ran.err.endswith("Nothing was submitted.\n")
    first, second, third, _ = ran.out.splitlines()
    assert first.split()[:2] == ["PLACE", "TYPE"]
    assert second.split()[:4] == ["→", "cloud", "g4", "north"]
    assert "$7.50  $0.53/h  2h 30m   available" in second
    assert third.split()[:2] == ["○", "lambda"]
    asked = server.plans_asked[0]
    assert (asked["optimize"], asked["hours"], asked["gpu_types"], asked["max_cost_usd"]) == ("speed", 2.0, ["T4"], 0.0)
    assert asked["files"] == {"train.py": "import torch\n"}
    assert not server.specs


def test_the_time_of_what_uses_no_gpu_is_told_for_processors(cli: Cli, server: FakeServer) -> None:
    server.plan = {**plan(HERE, HERE), "profile": {**PROFILE, "gpu": "none"}}
    assert "Runs:       about 2h 30m on 8 processors (low" in cli("plan", "train.py").err


def test_what_is_not_known_of_what_it_needs_is_asked_for(cli: Cli, server: FakeServer) -> None:
    asked = "How large is sales.csv, which is read whole?"
    server.plan = {
        **plan(HERE, HERE),
        "profile": {**PROFILE, "host_memory_gb": 0.4, "unknown": {"host_memory_gb": asked}},
    }
    assert f"Not known: {asked}\n" in cli("plan", "train.py").err


def test_as_json_it_is_the_servers_answer(cli: Cli, server: FakeServer) -> None:
    server.plan = plan(CLOUD, CLOUD)
    ran = cli("plan", "train.py", "--json")
    assert ran.json["profile"]["gpu"] == "required"
    assert ran.json["offers"][0]["backend"] == "cloud"


def test_why_connected_places_are_none_and_how_many_others(cli: Cli, server: FakeServer) -> None:
    rejected = [{**HERE, "why": "needs a GPU, and there is none"}, {**AFAR, "why": "is spot", "alike": 40}]
    server.plan = plan(None, AFAR, rejected=rejected, rejected_count=41, why="Nothing that is connected can run it.")
    ran = cli("plan", "train.py")
    assert ran.code == 6
    assert "1 offer of local does not fit: it needs a GPU, and there is none." in ran.err
    assert "40 offers of other providers do not fit; --json says why." in ran.err
    assert "Nothing that is connected can run it.\n" in ran.err


def test_a_job_that_only_others_could_hold_ends_with_the_plan_and_6(cli: Cli, server: FakeServer) -> None:
    server.plan = plan(None, AFAR, why="Nothing that is connected can run it.")
    ran = cli("run", "train.py")
    assert ran.code == 6
    assert ran.out == ""
    assert "○ lambda g4 in north: $7.50 in all, done in 2h 30m" in ran.err
    assert "GPU:        required (high confidence, train.py:12)" in ran.err
    assert "Fix: lambda is not connected. Connect it: crucible up." in ran.err
    assert not server.specs


def test_run_goes_where_the_plan_says(cli: Cli, server: FakeServer) -> None:
    server.plan = plan({**CLOUD, "total_micros": 900_000}, CLOUD)
    ran = cli("run", "train.py", "--detach")
    assert ran.code == 0
    assert "Plan: cloud, $0.90 in all, done in about 2h 30m." in ran.err
    assert (server.specs[0]["backend"], server.specs[0]["resources"]["gpus"]) == ("cloud", 1)


def test_what_it_may_cost_goes_with_the_job_and_says_when_it_ends(cli: Cli, server: FakeServer) -> None:
    chosen = {**CLOUD, "total_micros": None, "eta_seconds": None, "most_micros": 10, "paid_seconds": 370.0}
    server.plan = plan(chosen, CLOUD)
    ran = cli("run", "train.py", "--detach", "--max-cost", "0.1", "--backend", "cloud")
    assert ran.code == 0
    assert "Plan: cloud, $0.53/h, ended after 6m 10s, which its max_cost_usd buys." in ran.err
    assert server.specs[0]["max_cost_usd"] == 0.1


def test_a_job_that_only_costs_too_much_ends_with_7(cli: Cli, server: FakeServer) -> None:
    why = "Nothing that is connected can run it: it would cost $0.001 at least, more than $0.00."
    server.plan = plan(None, why=why, too_dear=True)
    ran = cli("run", "train.py", "--max-cost", "0", "--backend", "cloud")
    assert (ran.code, server.specs) == (7, [])
    assert why in ran.err
    assert "Fix: Raise max_cost_usd (--max-cost)" in ran.err
    assert cli("plan", "train.py", "--max-cost", "0").code == 7


def test_run_says_what_would_be_much_faster(cli: Cli, server: FakeServer) -> None:
    server.plan = plan(HERE, HERE, AFAR)
    ran = cli("run", "train.py", "--detach")
    assert "Plan: local, free, done in about 1d 1h." in ran.err
    assert "lambda g4 would be done in 2h 30m, $7.50 in all" in ran.err
    assert server.specs[0]["backend"] is None


def test_run_asks_before_it_spends_more_than_the_setting(
    cli: Cli, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.plan = plan(CLOUD, CLOUD)
    ran = cli("run", "train.py", "--detach")
    assert ran.code == 2
    assert "It may cost $7.50 at cloud, more than $5" in ran.err
    assert "Add --yes" in ran.err
    assert not server.specs
    assert cli("run", "train.py", "--detach", "--yes").code == 0
    monkeypatch.setenv("CRUCIBLE_ASK_ABOVE", "20")
    assert cli("run", "train.py", "--detach").code == 0
    assert len(server.specs) == 2


def test_where_nobody_knows_how_long_the_most_it_can_cost_counts(cli: Cli, server: FakeServer) -> None:
    server.plan = plan({**CLOUD, "total_micros": None}, CLOUD)
    assert "It may cost $13.00" in cli("run", "train.py", "--detach").err
    server.plan = plan({**CLOUD, "total_micros": None, "simulated": True}, CLOUD)
    assert cli("run", "train.py", "--detach").code == 0


def test_here_by_name_needs_no_plan(cli: Cli, server: FakeServer) -> None:
    assert cli("run", "train.py", "--detach", "--backend", "local").code == 0
    assert not server.plans_asked


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--optimize", "cheap"), "There is no aim 'cheap'"),
        (("--gpu", "A1000"), "There is no GPU type 'A1000'"),
        (("--deadline", "soon"), "--deadline: 'soon' is no length of time"),
        (("--hours", "-1"), "--hours"),
        (("--max-cost", "-1"), "--max-cost must"),
        (("--gpu", "A100", "--gpus", "0"), "It wants A100, and no GPU."),
    ],
)
def test_what_cannot_be_asked(cli: Cli, server: FakeServer, flags: tuple[str, ...], words: str) -> None:
    ran = cli("plan", "train.py", *flags)
    assert ran.code == 2
    assert words in ran.err
    assert not server.plans_asked
