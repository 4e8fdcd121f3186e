"""How long a job was said to take, and how long it took, at a real terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.terminal import Terminal
from tests.harness import until

TRAIN = """
def train():
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(6000, 784), torch.zeros(6000, dtype=torch.long))
    for epoch in range(3):
        for x, y in torch.utils.data.DataLoader(data, batch_size=64):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

try:
    train()
except ImportError:
    sum(range(3_000_000))
print("trained")
"""


@dataclass(frozen=True)
class PlannedJob:
    """A plan was asked for, and a job followed it."""

    terminal: Terminal
    before: dict[str, Any]
    shown: dict[str, Any]

    @property
    def item(self) -> dict[str, Any]:
        (item,) = self.shown["items"]
        return dict(item)


@pytest.fixture(scope="module")
def planned_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlannedJob]:
    with Terminal(tmp_path_factory.mktemp("predictions")) as terminal:
        terminal.crucible.start()
        go = terminal.folder / "go"
        terminal.write(train=f"{TRAIN}import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.1)\n")
        before = json.loads(terminal.ok("plan", "train.py", "--json"))
        job = terminal.ok("run", "train.py", "--detach", "--quiet").strip()
        until(lambda: terminal.crucible.get("/api/v1/predictions")["items"], 60, "its prediction")
        go.touch()
        terminal.ok("logs", job, "--follow")
        yield PlannedJob(terminal, before, json.loads(terminal.ok("predictions", "--json")))


def test_a_job_is_shown_with_what_was_said_of_it_and_its_error(planned_job: PlannedJob) -> None:
    item = planned_job.item
    assert item["predicted_seconds"] == planned_job.before["chosen"]["seconds"]
    assert item["took_seconds"] > 0
    off = abs(item["predicted_seconds"] - item["took_seconds"]) / item["took_seconds"]
    assert item["error"] == pytest.approx(off, abs=1e-4)
    assert planned_job.shown["accuracy"]["count"] == 1
    done = planned_job.terminal.run("predictions")
    assert item["short"] in done.stdout
    assert "Predictions of 1 job here" in done.stderr
    status = json.loads(planned_job.terminal.ok("status", item["job"], "--json"))
    assert status["predicted_seconds"] == item["predicted_seconds"]


def test_the_next_plan_is_corrected_also_by_a_server_that_was_started_anew(planned_job: PlannedJob) -> None:
    assert (planned_job.before["learned"], planned_job.before["accuracy"]["count"]) == (None, 0)
    planned_job.terminal.ok("down")
    after = json.loads(planned_job.terminal.ok("plan", "train.py", "--json"))
    assert (after["learned"]["jobs"], after["learned"]["same_program"]) == (1, 1)
    factor = planned_job.item["took_seconds"] / planned_job.item["analytic_seconds"]
    assert min(1.0, factor) < after["learned"]["factor"] < max(1.0, factor)
    said = planned_job.terminal.run("plan", "train.py").stderr
    assert "times as long as the code alone says, after 1 past job, 1 of them of this program" in said
    assert "Predictions of 1 job here" in said


def test_a_job_whose_place_is_named_is_predicted_while_it_runs(tmp_path: Path) -> None:
    """Nothing was asked for before it was submitted, and its owner waited for nothing."""
    with Terminal(tmp_path) as terminal:
        terminal.crucible.start()
        terminal.write(train=TRAIN + "import time; time.sleep(1000)")
        plan = json.loads(terminal.ok("plan", "train.py", "--backend", "local", "--json"))
        job = terminal.ok("run", "train.py", "--backend", "local", "--detach", "--quiet").strip()
        item = until(lambda: terminal.crucible.get("/api/v1/predictions")["items"], 60, "its prediction")[0]
        assert (item["job"], item["backend"], item["why_not"]) == (job, "local", "it has not ended")
        assert item["predicted_seconds"] == plan["chosen"]["seconds"]
        terminal.ok("cancel", job, "--yes")
