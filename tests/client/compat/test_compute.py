from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.fake_server import JOB, FakeServer, completed, failed, job_view

from crucible import JobFailed, SyncMLPlatform
from crucible.client.compat import ComputeBackend, JobConfig, JobType, ResourceRequirements, TrainJobConfig, get_backend
from crucible.core.errors import BadInput, NotFound, UnknownName

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def local(blocking: SyncMLPlatform) -> ComputeBackend:
    return get_backend("local", blocking)


def test_launch_submits_to_this_backend_alone(local: ComputeBackend, server: FakeServer, tmp_path: Path) -> None:
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
    assert local.launch(config) == JOB
    (spec,) = server.specs
    assert (spec["backend"], spec["fallback"], spec["kind"], spec["name"]) == ("local", [], "train", "mine")
    assert spec["command"] == ["{python}", "train.py", "--goal", "win"]
    assert spec["data"] == [{"name": "capture", "source": str(tmp_path / "capture")}]
    assert (spec["resources"]["cpus"], spec["resources"]["seconds"], spec["env"]) == (1, 60, {"A": "1"})


def test_a_command_of_another_kind(local: ComputeBackend, server: FakeServer) -> None:
    local.launch(JobConfig(command="make bench", job_type=JobType.BENCHMARK))
    assert (server.specs[0]["command"], server.specs[0]["kind"]) == (["/bin/sh", "-c", "make bench"], "benchmark")


def test_what_cannot_be_launched(local: ComputeBackend, blocking: SyncMLPlatform) -> None:
    with pytest.raises(BadInput, match="nothing to run"):
        local.launch(JobConfig())
    with pytest.raises(BadInput, match="takes a JobConfig"):
        local.launch({"path": "x"})  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="backend 'locl'"):
        ComputeBackend("locl", blocking).launch(JobConfig(command="true"))


def test_status_and_terminate(local: ComputeBackend, server: FakeServer) -> None:
    server.jobs[JOB] = job_view(progress={"fraction": 0.5})
    assert local.status(JOB).progress == 50.0
    local.terminate(JOB)
    assert local.status(JOB).state == "cancelled"
    local.terminate(JOB)


def test_a_job_of_another_backend_is_not_found_here(blocking: SyncMLPlatform, server: FakeServer) -> None:
    server.jobs[JOB] = job_view()
    with pytest.raises(NotFound, match=r"ComputeBackend\('local'\)"):
        ComputeBackend("aws", blocking).status(JOB)


def test_run_is_a_job_beside_with_the_same_files(local: ComputeBackend, server: FakeServer) -> None:
    server.jobs[JOB] = completed(bundle="ab" * 32, environment={"interpreter": "/usr/bin/python3", "origin": "said"})
    local.run(JOB, "python evaluate.py")
    (spec,) = server.specs
    assert (spec["command"], spec["bundle"]) == (["/bin/sh", "-c", "python evaluate.py"], "ab" * 32)
    assert (spec["environment"]["interpreter"], spec["backend"]) == ("/usr/bin/python3", "local")
    with pytest.raises(BadInput, match="command is a text"):
        local.run(JOB, " ")


def test_a_command_that_fails_is_told(local: ComputeBackend, server: FakeServer) -> None:
    server.jobs[JOB] = failed(2)
    with pytest.raises(JobFailed, match="exit code 2"):
        local.run(JOB, "false")


def test_download_to_a_file_or_into_a_folder(local: ComputeBackend, server: FakeServer, tmp_path: Path) -> None:
    server.jobs[JOB] = completed()
    server.artifacts = {"out/model.bin": b"weights", "out/deep/log.txt": b"x", "top.txt": b"y"}
    local.download(JOB, "out/model.bin", tmp_path / "mine.bin")
    assert (tmp_path / "mine.bin").read_bytes() == b"weights"
    local.download(JOB, "out/", tmp_path / "all")
    assert sorted(p.relative_to(tmp_path).as_posix() for p in (tmp_path / "all").rglob("*.*")) == [
        "all/deep/log.txt",
        "all/model.bin",
    ]
    local.download(JOB, "top.txt", f"{tmp_path}/into/")
    assert (tmp_path / "into/top.txt").read_bytes() == b"y"
    with pytest.raises(NotFound, match="no artifact 'nosuch'"):
        local.download(JOB, "nosuch", tmp_path)


def test_a_name_that_leads_out_of_the_folder_is_refused(
    local: ComputeBackend, server: FakeServer, tmp_path: Path
) -> None:
    server.jobs[JOB] = completed()
    server.artifacts = {"out/../../evil": b"x"}
    with pytest.raises(BadInput, match="lead out of the folder"):
        local.download(JOB, "out", tmp_path / "all")
