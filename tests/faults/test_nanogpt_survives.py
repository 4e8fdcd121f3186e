"""nanoGPT on machines that are taken away: it ends with the weights of a run that nothing disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.rehearsal_deployment import LONG, RehearsalDeployment, rehearsed
from tests.harness import View, until
from tests.templates.nanogpt.torch_fork_server import TorchForkServer
from tests.templates.nanogpt.trainer import SECONDS, Trainer, environment, steps_in
from tests.templates.torch_environment import torch_python

from crucible.templates import copy_to

pytestmark = pytest.mark.timeout(2400)
"""The first test may have to wait until torch is installed."""

STEPS, EVERY = 200, 20
END = 4 * LONG
ARGUMENTS = ("--preset", "cpu-tiny", "--steps", str(STEPS), "--log-every", "1", "--checkpoint-every", str(EVERY))

GATED = """\
import os, sys, time
import job, train

gates = {int(word): f"{os.environ['GATES']}/{word}" for word in os.environ.get("GATED", "").split()}
step = train.log_step

def after_its_gate(run, board, first):
    gate = gates.get(run.step + 1)
    while gate and not os.path.exists(gate) and not job.should_stop():
        time.sleep(0.05)
    step(run, board, first)
    with open(f"{os.environ['GATES']}/{os.environ['CRUCIBLE_ATTEMPT_ID']}.steps", "a") as journal:
        journal.write(f"{run.step}\\n")

train.log_step = after_its_gate
sys.exit(train.main())
"""
"""The template as it is, held before some steps.

It notes each step in a file beside the gates, because the end of a killed machine's output may be lost with it.
"""


class Training:
    """nanoGPT as jobs of a real deployment. A gate holds a job before a step until its machine is lost there."""

    def __init__(self, world: RehearsalDeployment, trainer: Trainer) -> None:
        self.world, self.trainer = world, trainer
        self._gates: dict[str, Path] = {}

    def submit(self, place: str, *gates: int) -> str:
        market = ("--market", "spot") if place.startswith("rehearsal") else ()
        opened = self.trainer.folder / str(len(self._gates))
        opened.mkdir()
        env = {"GATES": opened, "GATED": " ".join(map(str, gates))}
        variables = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
        size = ("--cpus", "1", "--memory", "2G")
        where = ("--backend", place, "--python", str(self.trainer.python), *size, *market)
        what = ("run", str(self.trainer.code), "--entry", "gated.py", *variables)
        done = self.world.crucible.cli(*what, *where, "--detach", "--quiet", "--", *ARGUMENTS)
        assert done.returncode == 0, done.stderr
        job = done.stdout.strip()
        self._gates[job] = opened
        return job

    def lose_machine(self, job: str, attempt: int, gate: int, notice: float | None) -> None:
        """Takes the machine back while the job waits at the gate, with its last checkpoint listed."""
        instance = self.world.instance_of(job, attempt)
        saved = (gate - 1) // EVERY * EVERY
        until(lambda: saved in self._saved(job), LONG, f"the checkpoint of step {saved} to be listed")
        until(lambda: gate - 1 in self.steps(job)[-1], LONG, f"step {gate - 1} to be done")
        self.world.reclaim(instance, notice)
        until(lambda: self.world.crucible.job(job)["attempt"] > attempt, LONG, "another attempt")
        (self._gates[job] / str(gate)).touch()

    def steps(self, job: str) -> list[list[int]]:
        """The steps that each attempt did, as the program itself noted them."""
        journals = [self._gates[job] / f"{a['id']}.steps" for a in self.world.crucible.job(job)["attempts"]]
        return [[int(line) for line in path.read_text().split()] if path.exists() else [] for path in journals]

    def printed(self, job: str, attempt: int) -> list[int]:
        """The steps that the attempt's output tells of."""
        return steps_in(self.world.crucible.log(job, attempt).decode())

    def weights(self, job: str, checkpoint: str = "latest") -> str:
        """Those of the checkpoint, as anybody can fetch it."""
        with self.world.crucible.client() as client:
            answer = client.get(f"/api/v1/jobs/{job}/checkpoints/{checkpoint}/content")
        assert answer.status_code == 200, answer.text
        path = self.trainer.folder / f"{job}-{checkpoint}.pt"
        path.write_bytes(answer.content)
        return self.trainer.digests(path)[0]

    def end(self, job: str) -> View:
        view = self.world.crucible.wait(job, END)
        assert view["status"] == "completed", (view["reason"], self.world.crucible.log(job)[-2000:])
        return view

    def _saved(self, job: str) -> list[int]:
        return [found["step"] for found in self.world.crucible.get(f"/api/v1/jobs/{job}/checkpoints")["items"]]


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    folder, code = tmp_path_factory.mktemp("gates"), tmp_path_factory.mktemp("nanogpt")
    copy_to("nanogpt", code)
    (code / "gated.py").write_text(GATED)
    with rehearsed(tmp_path_factory.mktemp("world")) as world:
        world.crucible.start()
        python = torch_python()
        with closing(TorchForkServer(python, code, environment(), SECONDS)) as torch_fork_server:
            yield Training(world, Trainer(python, code, folder, torch_fork_server))


@pytest.fixture(scope="module")
def undisturbed(training: Training) -> str:
    """The weights of a run on this computer that nothing disturbed."""
    job = training.submit("local")
    training.end(job)
    assert training.steps(job) == [list(range(1, STEPS + 1))]
    return training.weights(job)


def test_three_interruptions_do_not_change_the_weights(training: Training, undisturbed: str) -> None:
    """Two with notice and a hard one between them: only that one costs steps, and less than an interval."""
    job = training.submit("rehearsal", 48, 111, 152)
    training.lose_machine(job, 1, 48, 60)
    training.lose_machine(job, 2, 111, None)
    training.lose_machine(job, 3, 152, 60)
    view = training.end(job)

    assert [a["reason"] for a in view["attempts"]] == ["interrupted"] * 3 + ["completed"]
    assert {a["backend"] for a in view["attempts"]} == {"rehearsal"}
    begun_from = [a["resume_from"]["step"] for a in view["attempts"][1:]]
    assert begun_from == [48, 100, 152], "asked to stop it ends the step and saves; killed it goes back to a checkpoint"
    done = training.steps(job)
    assert [steps[0] for steps in done] == [1, *(step + 1 for step in begun_from)]
    assert [steps[-1] for steps in done] == [48, 110, 152, STEPS]
    assert sum(map(len, done)) == STEPS + 10 <= STEPS + EVERY
    for number in (1, 3, 4):
        assert training.printed(job, number) == done[number - 1], "the output of a machine that had notice is whole"
    assert training.weights(job) == undisturbed
    training.world.nothing_lives()
    training.world.bills_agree()


def test_from_a_lost_machine_to_this_computer(training: Training, undisturbed: str) -> None:
    """The same weights again; those of the checkpoint before the last are others, so the comparison sees a step."""
    job = training.submit("rehearsal,local", 48)
    training.lose_machine(job, 1, 48, 60)
    view = training.end(job)

    assert [(a["backend"], a["reason"]) for a in view["attempts"]] == [
        ("rehearsal", "interrupted"),
        ("local", "completed"),
    ]
    assert training.steps(job) == [list(range(1, 49)), list(range(49, STEPS + 1))]
    assert training.weights(job) == undisturbed
    assert training.weights(job, f"step_{STEPS - EVERY:08}.pt") != undisturbed
