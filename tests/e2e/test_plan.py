"""`crucible plan` and `run --dry-run` at a real terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.e2e.terminal import Terminal

GPT = """\
import torch
from torch import nn
from torchvision.datasets import MNIST

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 10))

    def forward(self, x):
        return self.layers(x)

data = torch.utils.data.DataLoader(MNIST("data"), batch_size=64)
net = Net().to("cuda")
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(20):
    for x, y in data:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x.to("cuda")), y.to("cuda")).backward()
        optimizer.step()
"""


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with Terminal(tmp_path_factory.mktemp("plan"), CRUCIBLE_BACKENDS="local,rehearsal") as terminal:
        terminal.crucible.start()
        yield terminal


def test_a_plan_is_a_table_of_what_there_is(terminal: Terminal) -> None:
    done = terminal.run("plan", "--code", "print(1)", "--backend", "rehearsal,local", "--spot", "--time", "1h")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].startswith("→  rehearsal")
    assert "/h" in lines[1]
    assert any("this computer" in line for line in lines)
    assert "Nothing was submitted" in done.stderr
    assert len(lines) < 15


def test_a_dry_run_ends_with_the_call_that_would_be_sent(terminal: Terminal) -> None:
    out = terminal.ok("run", "--code", "print(1)", "--dry-run")
    call = json.loads(out[out.index("{") :])
    assert (call["backend"], call["token"][:4]) == ("local", "mch-")
    assert json.loads(terminal.ok("jobs", "--json"))["items"] == []


def test_as_json_it_is_all_there(terminal: Terminal) -> None:
    plan = json.loads(terminal.ok("plan", "--code", "print(1)", "--json", "--limit", "5000"))
    assert plan["chosen"]["backend"] == "local"
    assert plan["offers"][0]["backend"] == "local"
    assert {"rehearsal", "aws", "lambda", "modal"} <= {offer["backend"] for offer in plan["offers"]}
    assert [offer["backend"] for offer in plan["offers"] if offer["runnable"]] == ["local"]
    assert all(offer["why"] for offer in plan["rejected"])


def test_what_nothing_can_hold(terminal: Terminal) -> None:
    done = terminal.run("plan", "--code", "1", "--gpus", "64")
    assert done.returncode == 6
    assert "No offer fits. The nearest is " in done.stderr


def test_a_program_is_read_and_priced_everywhere(terminal: Terminal) -> None:
    (terminal.folder / "gpt.py").write_text(GPT)
    done = terminal.run("plan", "gpt.py", "--json", "--limit", "5000")
    assert done.returncode == 6, done.stderr
    plan = json.loads(done.stdout)
    profile = plan["profile"]
    assert (profile["frameworks"], profile["gpu"]) == (["torch"], "required")
    assert profile["evidence"]["gpu"][0] == {"file": "gpt.py", "line": 14, "text": 'net = Net().to("cuda")'}
    assert profile["runtime_hours"] > 0
    totals = [offer["total_usd"] for offer in plan["offers"]]
    assert totals == sorted(totals)
    assert not any(offer["runnable"] for offer in plan["offers"])


def test_a_job_that_nothing_connected_can_hold_is_not_submitted(terminal: Terminal) -> None:
    (terminal.folder / "gpt.py").write_text(GPT)
    done = terminal.run("run", "gpt.py")
    assert done.returncode == 6
    assert "No connected backend can run it: it has no GPU, and one is needed." in done.stderr
    assert "○ Not connected, and no command connects " in done.stderr
    assert json.loads(terminal.ok("jobs", "--json"))["items"] == []


def test_a_rehearsal_by_name_gets_the_gpu_and_asks_above_the_limit(terminal: Terminal) -> None:
    (terminal.folder / "gpt.py").write_text(GPT)
    plan = json.loads(terminal.ok("plan", "gpt.py", "--backend", "rehearsal", "--gpus", "1", "--hours", "30", "--json"))
    assert plan["chosen"]["instance_type"] == "sim.t4.1"
    done = terminal.run("run", "gpt.py", "--backend", "rehearsal", "--gpus", "1", "--hours", "30", "--detach")
    assert (done.returncode, "Add --yes" in done.stderr) == (2, True)
    assert json.loads(terminal.ok("jobs", "--json"))["items"] == []


def test_while_it_is_being_typed(terminal: Terminal) -> None:
    for end in range(0, len(GPT), 60):
        plan = json.loads(terminal.run("plan", "--code", GPT[:end] or "#", "--json").stdout)
        assert plan["profile"]["gpu"] in ("none", "optional", "required", None)
