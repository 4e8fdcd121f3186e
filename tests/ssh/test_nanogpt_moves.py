"""nanoGPT moves from an ssh host to this computer and back: it ends with the weights of an undisturbed run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.harness import Deployment, View, until
from tests.ssh.sshd import Network, SshHost
from tests.templates.nanogpt.torch_fork_server import Start, TorchForkServer
from tests.templates.nanogpt.trainer import SECONDS, Trainer, environment, steps_in
from tests.templates.torch_environment import torch_python

from crucible.templates import copy_to

pytestmark = pytest.mark.timeout(2400)
"""The test may have to wait until torch is installed."""

STEPS, EVERY = 200, 20
FIRST_STOP, SECOND_STOP = 48, 111
ARGUMENTS = ("--preset", "cpu-tiny", "--steps", str(STEPS), "--log-every", "1", "--checkpoint-every", str(EVERY))

HELD = f"""\
import os, sys, time
import job, train

step = train.log_step

def step_when_asked_to_stop(run, board, first):
    while run.step + 1 in ({FIRST_STOP}, {SECOND_STOP}) and not job.should_stop():
        time.sleep(0.05)
    step(run, board, first)

train.log_step = step_when_asked_to_stop
print("on", os.uname().nodename, flush=True)
sys.exit(train.main())
"""
"""The template as it is, held before two of its steps until it is asked to stop: it stops after them."""


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    folder, code = tmp_path_factory.mktemp("undisturbed"), tmp_path_factory.mktemp("nanogpt")
    copy_to("nanogpt", code)
    (code / "held.py").write_text(HELD)
    python = torch_python()
    with closing(TorchForkServer(python, code, environment(), SECONDS)) as torch_fork_server:
        yield Trainer(python, code, folder, torch_fork_server)


@pytest.fixture
def host(network: Network, trainer: Trainer) -> Iterator[SshHost]:
    """A host with torch, at the path that it has on this computer."""
    virtual_environment, its_base = trainer.python.parents[1], trainer.python.resolve().parents[1]
    made = network.add("gpu1", shared=(virtual_environment, its_base))
    yield made
    made.stop()


@pytest.fixture
def deployment(network: Network, host: SshHost, tmp_path: Path) -> Iterator[Deployment]:
    env = {
        "CRUCIBLE_BACKENDS": "local,ssh",
        "CRUCIBLE_SSH_HOSTS": host.name,
        "CRUCIBLE_SSH_CONFIG": str(network.config),
    }
    with Deployment(tmp_path, env) as started:
        yield started


def test_moves_do_not_change_the_weights(
    deployment: Deployment, host: SshHost, trainer: Trainer, tmp_path: Path
) -> None:
    """Each stop is between two checkpoints, so that the one saved at the stop is used, and no step is done twice."""
    (undisturbed,) = trainer.together(Start(trainer.folder, ARGUMENTS))
    assert (undisturbed.code, undisturbed.steps) == (0, list(range(1, STEPS + 1))), undisturbed

    job = submit(deployment, trainer)
    cancel_before(deployment, job, FIRST_STOP)
    resume(deployment, job, "local")
    cancel_before(deployment, job, SECOND_STOP)
    resume(deployment, job, "ssh")
    view = deployment.wait(job, 120)

    assert view["status"] == "completed", (view["reason"], deployment.log(job)[-2000:])
    attempts = view["attempts"]
    assert [attempt["backend"] for attempt in attempts] == ["ssh", "local", "ssh"]
    assert [attempt["resume_from"]["step"] for attempt in attempts[1:]] == [FIRST_STOP, SECOND_STOP]
    outputs = [deployment.log(job, attempt["number"]).decode() for attempt in attempts]
    here = os.uname().nodename
    assert [output.split()[:2] for output in outputs] == [["on", name] for name in (host.name, here, host.name)]
    assert steps_in("".join(outputs)) == undisturbed.steps
    moved, expected = tmp_path / "model.pt", trainer.folder / "outputs" / "model.pt"
    moved.write_bytes(artifact(deployment, job, "model.pt"))
    earlier = trainer.folder / "checkpoints" / f"step_{STEPS - EVERY:08}.pt"
    digests = trainer.digests(moved, expected, earlier)
    assert digests[0] == digests[1] != digests[2], "the last are others, so that the comparison sees a step"


def submit(deployment: Deployment, trainer: Trainer) -> str:
    size = ("--cpus", "1", "--memory", "2G", "--env", "OMP_NUM_THREADS=1")
    what = ("run", str(trainer.code), "--entry", "held.py", "--python", str(trainer.python), *size)
    done = deployment.cli(*what, "--backend", "ssh", "--detach", "--quiet", "--", *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def cancel_before(deployment: Deployment, job: str, step: int) -> None:
    """Cancel the job while it is held before this step, which it then does and saves."""
    until(lambda: saved(deployment, job) == (step - 1) // EVERY * EVERY, 120, f"the checkpoint before step {step}")
    until(lambda: f"iter {step - 1}/".encode() in deployment.log(job), 60, f"step {step - 1}")
    done = deployment.cli("cancel", job)
    assert done.returncode == 0, done.stderr
    assert deployment.wait(job)["status"] == "cancelled"
    assert saved(deployment, job) == step


def saved(deployment: Deployment, job: str) -> int:
    """Return the step of the newest checkpoint; 0 if there is none."""
    found: list[View] = deployment.get(f"/api/v1/jobs/{job}/checkpoints")["items"]
    return max((checkpoint["step"] for checkpoint in found), default=0)


def resume(deployment: Deployment, job: str, backend: str) -> None:
    done = deployment.cli("resume", job, "--backend", backend, "--detach")
    assert done.returncode == 0, done.stderr


def artifact(deployment: Deployment, job: str, name: str) -> bytes:
    with deployment.client() as client:
        answer = client.get(f"/api/v1/jobs/{job}/artifacts/{name}")
    assert answer.status_code == 200, answer.text
    return bytes(answer.content)
