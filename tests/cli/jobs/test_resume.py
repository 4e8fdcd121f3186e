"""`crucible resume` and `rerun`."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer, RunningJob
from tests.control.clouds import FakeCloud
from tests.control.fakes import FakeBackend

from crucible.core.errors import Unreachable

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def backends() -> tuple[FakeBackend, ...]:
    return (FakeCloud("rehearsal"),)


@pytest.fixture
def failed(real: RealServer) -> RunningJob:
    """A job that failed after it saved."""
    job = real.start()
    real.run(job.write, b"old output\n")
    real.run(job.checkpoint, "step_00000600.pt", b"weights", 600)
    real.run(job.end, 3)
    return job


def kept_of(real: RealServer, job: RunningJob) -> str:
    checkpoint = real.view(job).checkpoint
    assert checkpoint is not None
    return checkpoint.short


async def move(job: RunningJob) -> None:
    """It saves at step 600, goes on to step 620, loses its machine and starts at the next place."""
    await job.start()
    await job.checkpoint("step_00000600.pt", b"weights", 600)
    await job.progress(step=620)
    await job.lose_machine()
    await job.start()


def test_a_job_goes_on_from_its_checkpoint_and_is_followed(cli: Cli, real: RealServer, failed: RunningJob) -> None:
    async def play(job: RunningJob) -> None:
        await real.perform(job, output=b"new\n")

    real.play_now(failed, play)
    ran = cli("resume", failed.short.removeprefix("job-"))
    kept = kept_of(real, failed)
    assert (ran.code, ran.out) == (0, "new\n")
    assert f"Resumed {failed.short} from {kept}, step 600" in ran.err
    assert f"Attempt 2: resumed from step 600 ({kept}, step_00000600.pt)" in ran.err
    assert f"{failed.short} completed" in ran.err
    query = parse_qs(real.streams[0])
    assert (query["attempt"], query["offset"]) == (["1"], ["11"])
    assert real.sent == [(f"/api/v1/jobs/{failed.id}/resume", {})]


def test_the_checkpoint_and_the_place_may_be_named(cli: Cli, real: RealServer, failed: RunningJob) -> None:
    ran = cli("resume", failed.id, "--checkpoint", "latest", "--backend", "local", "--detach")
    assert (ran.code, ran.out) == (0, f"{failed.id}\n")
    assert real.sent[0][1] == {"checkpoint": "latest", "backend": "local"}
    assert cli("resume", failed.id, "-d", "--json").code == 5


def test_the_followed_job_gives_its_code_and_says_how_to_go_on(cli: Cli, real: RealServer) -> None:
    job = real.complete(1)

    async def play(again: RunningJob) -> None:
        await again.start()
        await again.checkpoint("step_00000600.pt", b"weights", 600)
        await again.end(7)

    real.play_now(job, play)
    ran = cli("resume", job.id)
    assert ran.code == 7
    assert "from the start: it has no checkpoint" in ran.err
    assert f"Its last checkpoint (step 600) is kept. Resume from it: crucible resume {job.short}" in ran.err


def test_a_job_that_runs_is_not_resumed(cli: Cli, real: RealServer) -> None:
    job = real.start()
    ran = cli("resume", job.id)
    assert ran.code == 5
    assert f"crucible cancel {job.short}" in ran.err


def test_unknown_names_are_refused(cli: Cli, real: RealServer, failed: RunningJob) -> None:
    ran = cli("resume", failed.id, "--checkpoint", "nosuch")
    assert (ran.code, f"crucible checkpoints {failed.short}" in ran.err) == (3, True)
    assert cli("resume", "nosuch").code == 3
    ran = cli("resume", failed.id, "--backend", "locale")
    assert (ran.code, "Did you mean 'local'" in ran.err) == (2, True)
    assert real.view(failed).status == "failed"


def test_a_job_is_run_again_as_a_new_one(cli: Cli, real: RealServer, failed: RunningJob) -> None:
    real.play(output=b"again\n")
    ran = cli("rerun", failed.id)
    assert (ran.code, ran.out) == (0, "again\n")
    assert f"Submitted {real.last.short}, a rerun of {failed.short}" in ran.err
    assert cli("rerun", failed.id, "--detach").out == f"{real.last.id}\n"
    assert cli("rerun", failed.id, "--detach", "--json").json["id"] == real.last.id
    assert len({*real.keys}) == 3
    assert cli("rerun", "nosuch").code == 3


def test_a_move_is_told_while_it_is_followed(cli: Cli, real: RealServer) -> None:
    async def play(job: RunningJob) -> None:
        await move(job)
        await job.end()

    real.play(play)
    ran = cli("run", "-c", "print(1)", "--backend", "rehearsal", "--spot", "--fallback", "local")
    kept = kept_of(real, real.last)
    again = f"Attempt 2: resumed from step 600 ({kept}, step_00000600.pt); 20 steps to repeat"
    assert ran.code == 0
    assert ran.err.count("Attempt 1 ended: interrupted") == 1
    assert ran.err.count(again) == 1
    assert ran.err.index("Attempt 1 ended") < ran.err.index(again)
    assert ran.err.count("Simulated: ") == 1


def test_a_silent_machine_is_told_once(cli: Cli, real: RealServer) -> None:
    async def play(job: RunningJob) -> None:
        await job.start()
        await real.harness.listen(60)
        await job.says("unreachable")
        await job.write(b"one\n")
        await job.end()

    real.play(play)
    assert cli("run", "-c", "print(1)").err.count("machine unreachable; the job may still be running") == 1


def test_status_tells_the_tries(cli: Cli, real: RealServer) -> None:
    job = real.submit(backend="rehearsal", market="spot", fallback=("local",))
    real.run(move, job)
    kept = kept_of(real, job)
    out = cli("status", job.id).out
    assert "1: rehearsal spot sim.small in north-1 (simulated); interrupted (it is interrupted); 20 steps lost" in out
    assert f"2: local; resumed from step 600 ({kept}, step_00000600.pt); running" in out
    assert "Moved" in out
    assert "from rehearsal to local" in out
    assert f"{kept} (step 600); crucible checkpoints {job.short}" in out
    assert "$0.0005 (simulated)" in out


def test_status_says_that_a_machine_of_an_ended_job_bills_on(
    cli: Cli, real: RealServer, backends: tuple[FakeCloud, ...]
) -> None:
    job = real.start(backend="rehearsal")
    backends[0].ends = [Unreachable("no answer")]
    real.run(job.end)
    real.run(real.harness.listen, 30)
    assert "one of its machines is billed until it is gone; see `crucible machines`" in cli("status", job.id).out
    assert "completed (still billing)" in cli("jobs").out


def test_one_plain_try_needs_no_list(cli: Cli, real: RealServer) -> None:
    assert "Attempts" not in cli("status", real.start().id).out
