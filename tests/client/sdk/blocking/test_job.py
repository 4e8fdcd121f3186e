from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.real_server import RealServer, RunningJob

from crucible import JobFailed, SyncMLPlatform
from crucible.client.payload.function import RESULT
from crucible.client.sdk.results import JobCancelled
from crucible.core.errors import BadInput, Conflict, NotFound, TimedOut

pytestmark = pytest.mark.enable_socket


def test_monitor_tells_of_moves_to_the_end(blocking: SyncMLPlatform, real: RealServer) -> None:
    async def move(job: RunningJob) -> None:
        await job.progress(fraction=0.5)
        await job.lose_machine()
        await job.start()
        await job.end()

    started = real.start(backend="far", fallback=("local",))
    job = blocking.job(started.id)
    statuses = job.monitor()
    first = next(statuses)
    real.run(move, started)
    found = [(s.backend, s.progress, s.backend_changed, s.ended) for s in (first, *statuses)]
    assert found[0] == ("far", 0.0, False, False)
    assert ("far", 50.0, False, False) in found
    assert [item for item in found if item[2]] == [("local", 0.0, True, False)]
    assert found[-1] == ("local", 100.0, False, True)
    assert job.view.status == "completed"


def test_wait_returns_however_it_ended(blocking: SyncMLPlatform, real: RealServer) -> None:
    job = real.start()
    real.play_now(job, lambda job: job.end(3))
    status = blocking.job(job.id).wait(timeout=30)
    assert (status.state, status.exit_code) == ("failed", 3)


def test_wait_gives_up_in_time(blocking: SyncMLPlatform, real: RealServer) -> None:
    job = blocking.job(real.start().id)
    with pytest.raises(TimedOut, match="It is running"):
        job.wait(timeout=0)
    for wrong in (-1, "soon", True):
        with pytest.raises(BadInput, match="timeout"):
            job.wait(timeout=wrong)  # type: ignore[arg-type]


def test_the_result_is_what_it_left(blocking: SyncMLPlatform, real: RealServer) -> None:
    left = {"model.bin": b"weights", RESULT: b'{"sum": 3}'}
    job = real.complete(artifacts=left, series={"loss": [0.75, 0.5]}, output=b"last line\n")
    result = blocking.job(job.id).result()
    assert (result.value, [file.path for file in result.files]) == ({"sum": 3}, ["model.bin"])
    assert result.metrics == {"loss": 0.5}
    assert result.status.logs == ("last line",)


def test_the_result_is_what_the_program_found_out(blocking: SyncMLPlatform, real: RealServer) -> None:
    job = real.complete(result=("value", [1, 2]))
    assert blocking.job(job.id).result().value == [1, 2]


def test_the_result_of_a_failed_job_is_an_error(blocking: SyncMLPlatform, real: RealServer) -> None:
    failed = blocking.job(real.complete(3).id)
    words = rf"failed with exit code 3\. The program ended with an error\. .*: crucible logs {failed.view.short}"
    with pytest.raises(JobFailed, match=words) as raised:
        failed.result()
    assert raised.value.status.exit_code == 3
    stopped = real.start()
    real.run(stopped.cancel)
    real.run(stopped.obey)
    with pytest.raises(JobCancelled, match="was cancelled"):
        blocking.job(stopped.id).result()


def test_logs_are_lines(blocking: SyncMLPlatform, real: RealServer) -> None:
    job = real.complete(output="one\nzwölf\nlast".encode())
    assert list(blocking.job(job.id).logs()) == ["one", "zwölf", "last"]
    assert list(blocking.job(job.id).logs(follow=True)) == ["one", "zwölf", "last"]


def test_metrics_are_a_table(blocking: SyncMLPlatform, real: RealServer) -> None:
    job, at = real.start(), real.harness.clock.now()
    real.run(job.points, loss=[0.5])
    assert list(blocking.job(job.id).metrics()) == [{"step": 1, "time": at, "loss": 0.5}]


def test_files_and_checkpoints_are_fetched(blocking: SyncMLPlatform, real: RealServer, tmp_path: Path) -> None:
    running = real.start()
    real.run(running.artifact, "out/model.bin", b"weights")
    real.run(running.artifact, "log.txt", b"x")
    job = blocking.job(running.id)
    assert job.download(tmp_path / "a", "out") == [tmp_path / "a/out/model.bin"]
    assert len(job.download(tmp_path / "a")) == 2
    (tmp_path / "a/log.txt").write_text("mine")
    with pytest.raises(Conflict, match=r"would be overwritten.*with overwrite=True"):
        job.download(tmp_path / "a")
    job.download(tmp_path / "a", overwrite=True)
    assert (tmp_path / "a/log.txt").read_text() == "x"
    with pytest.raises(NotFound, match="no artifact 'nosuch'"):
        job.download(tmp_path, "nosuch")
    real.run(running.checkpoint, "step_00000600.pt", b"weights", 600)
    assert [item.step for item in job.checkpoints()] == [600]
    saved = job.download_checkpoint(into=tmp_path)
    assert saved.read_bytes() == b"weights"
    saved.write_text("mine")
    with pytest.raises(Conflict, match="would be overwritten"):
        job.download_checkpoint(into=tmp_path)
    assert job.download_checkpoint(into=tmp_path, overwrite=True).read_bytes() == b"weights"


def test_what_changes_a_job(blocking: SyncMLPlatform, real: RealServer) -> None:
    job = blocking.job(real.start().id)
    job.checkpoint_now()
    assert real.sent[-1][0] == f"/api/v1/jobs/{job.id}/checkpoint"
    with pytest.raises(Conflict, match="has not ended"):
        job.resume()
    job.cancel()
    assert job.wait(30).state == "cancelled"
    assert job.resume(backend="far").state == "queued"
    assert job.view.backend == "far"
    assert job.rerun().id == real.last.id
