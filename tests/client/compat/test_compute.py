from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.client.real_server import RealServer

from crucible import JobFailed, SyncMLPlatform
from crucible.client.compat import ComputeBackend, JobConfig, JobType, ResourceRequirements, TrainJobConfig, get_backend
from crucible.core.errors import BadInput, NotFound, UnknownName
from crucible.core.job.spec import EnvironmentSpec

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def local(blocking: SyncMLPlatform) -> ComputeBackend:
    return get_backend("local", blocking)


def test_launch_submits_to_this_backend_alone(local: ComputeBackend, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "capture").mkdir()
    config = TrainJobConfig(
        path="train.py",
        capture=tmp_path / "capture",
        goal="win",
        requirements=ResourceRequirements(cpus=1, timeout_seconds=60),
        env={"A": "1"},
        name="mine",
    )
    assert local.launch(config) == real.last.id
    (spec,) = real.specs
    assert (spec["backend"], spec["fallback"], spec["kind"], spec["name"]) == ("local", [], "train", "mine")
    assert spec["command"] == ["{python}", "train.py", "--goal", "win"]
    assert spec["data"] == [{"name": "capture", "source": str(tmp_path / "capture")}]
    assert (spec["resources"]["cpus"], spec["resources"]["seconds"], spec["env"]) == (1, 60, {"A": "1"})


def test_a_command_of_another_kind(local: ComputeBackend, real: RealServer) -> None:
    local.launch(JobConfig(command="make bench", job_type=JobType.BENCHMARK))
    assert (real.specs[0]["command"], real.specs[0]["kind"]) == (["/bin/sh", "-c", "make bench"], "benchmark")


def test_what_cannot_be_launched(local: ComputeBackend, blocking: SyncMLPlatform) -> None:
    with pytest.raises(BadInput, match="nothing to run"):
        local.launch(JobConfig())
    with pytest.raises(BadInput, match="takes a JobConfig"):
        local.launch({"path": "x"})  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="backend 'locl'"):
        ComputeBackend("locl", blocking).launch(JobConfig(command="true"))


def test_status_and_terminate(local: ComputeBackend, real: RealServer) -> None:
    job = real.start()
    real.run(job.progress, fraction=0.5)
    assert local.status(job.id).progress == 50.0
    local.terminate(job.id)
    assert local.status(job.id).state == "cancelled"
    local.terminate(job.id)


def test_a_job_of_another_backend_is_not_found_here(blocking: SyncMLPlatform, real: RealServer) -> None:
    with pytest.raises(NotFound, match=r"ComputeBackend\('local'\)"):
        ComputeBackend("aws", blocking).status(real.start().id)


def test_run_is_a_job_beside_with_the_same_files(local: ComputeBackend, real: RealServer) -> None:
    environment = EnvironmentSpec(interpreter="/usr/bin/python3", origin="said")
    job = real.submit_program("print(1)", environment=environment)
    real.run(real.perform, job)
    real.play()
    local.run(job.id, "python evaluate.py")
    (spec,) = real.specs
    assert (spec["command"], spec["bundle"]) == (["/bin/sh", "-c", "python evaluate.py"], real.view(job).bundle)
    assert (spec["environment"]["interpreter"], spec["backend"]) == ("/usr/bin/python3", "local")
    with pytest.raises(BadInput, match="command must be text"):
        local.run(job.id, " ")


def test_a_command_that_fails_is_told(local: ComputeBackend, real: RealServer) -> None:
    real.play(code=2)
    with pytest.raises(JobFailed, match="exit code 2"):
        local.run(real.complete().id, "false")


def test_download_to_a_file_or_into_a_folder(local: ComputeBackend, real: RealServer, tmp_path: Path) -> None:
    left = {"out/model.bin": b"weights", "out/deep/log.txt": b"x", "top.txt": b"y"}
    job = real.complete(artifacts=left).id
    local.download(job, "out/model.bin", tmp_path / "mine.bin")
    assert (tmp_path / "mine.bin").read_bytes() == b"weights"
    local.download(job, "out/", tmp_path / "all")
    assert sorted(p.relative_to(tmp_path).as_posix() for p in (tmp_path / "all").rglob("*.*")) == [
        "all/deep/log.txt",
        "all/model.bin",
    ]
    local.download(job, "top.txt", f"{tmp_path}/into/")
    assert (tmp_path / "into/top.txt").read_bytes() == b"y"
    with pytest.raises(NotFound, match="no artifact 'nosuch'"):
        local.download(job, "nosuch", tmp_path)


def test_a_name_that_leads_out_of_the_folder_is_refused(
    local: ComputeBackend, real: RealServer, tmp_path: Path
) -> None:
    def lead_out(page: Any) -> Any:
        return {**page, "items": [{**item, "path": "out/../../evil"} for item in page["items"]]}

    job = real.complete(artifacts={"out/good": b"x"}).id
    real.faults.change("*/artifacts", lead_out)
    with pytest.raises(BadInput, match="lead out of the folder"):
        local.download(job, "out", tmp_path / "all")
    assert not (tmp_path / "evil").exists()
