from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.real_server import RealServer, RunningJob

from crucible.client.api import Api
from crucible.client.sdk.downloads import download, download_checkpoint, select_artifacts
from crucible.core.errors import BadInput, NotFound, Trouble
from crucible.core.views.jobs import CheckpointView
from crucible.core.views.records import ArtifactView

pytestmark = pytest.mark.enable_socket

DATA = bytes(range(256)) * 5000


@pytest.fixture
def job(real: RealServer) -> RunningJob:
    return real.complete(artifacts={"model/weights.bin": DATA, "metrics.json": b"{}"})


def artifact(real_api: Api, job: RunningJob, path: str = "model/weights.bin") -> ArtifactView:
    return next(item for item in real_api.artifacts(job.id) if item.path == path)


def test_an_artifact_arrives_whole(real_api: Api, job: RunningJob, tmp_path: Path) -> None:
    seen: list[int] = []
    path = download(real_api, job.id, artifact(real_api, job), tmp_path, progress=seen.append)
    assert path == tmp_path / "model" / "weights.bin"
    assert path.read_bytes() == DATA
    assert seen[-1] == len(DATA)
    assert [item.name for item in path.parent.iterdir()] == ["weights.bin"]


def test_a_broken_download_goes_on_where_it_stopped(
    real_api: Api, job: RunningJob, real: RealServer, tmp_path: Path
) -> None:
    wanted = artifact(real_api, job)
    real.faults.cut("*/artifacts/*", after=300_000)
    assert download(real_api, job.id, wanted, tmp_path).read_bytes() == DATA


def test_a_part_from_earlier_is_used(real_api: Api, job: RunningJob, real: RealServer, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights.bin.part").write_bytes(DATA[:1000])
    assert download(real_api, job.id, artifact(real_api, job), tmp_path).read_bytes() == DATA


def test_a_file_that_is_there_and_sound_is_kept(
    real_api: Api, job: RunningJob, real: RealServer, tmp_path: Path
) -> None:
    wanted = artifact(real_api, job)
    download(real_api, job.id, wanted, tmp_path)
    before = len(real.requests)
    download(real_api, job.id, wanted, tmp_path)
    assert len(real.requests) == before


def test_a_damaged_file_is_trouble_and_leaves_nothing(real_api: Api, job: RunningJob, tmp_path: Path) -> None:
    wanted = artifact(real_api, job)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights.bin.part").write_bytes(b"x" * 1000)
    with pytest.raises(Trouble, match="damaged"):
        download(real_api, job.id, wanted, tmp_path)
    assert list((tmp_path / "model").iterdir()) == []


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "a\\b"])
def test_a_name_that_leads_out_is_refused(real_api: Api, job: RunningJob, tmp_path: Path, name: str) -> None:
    evil = ArtifactView(path=name, size=1, sha256="0" * 64)
    with pytest.raises(BadInput, match="lead out"):
        download(real_api, job.id, evil, tmp_path)


def test_a_link_in_the_target_folder_is_not_followed(real_api: Api, job: RunningJob, tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "model").symlink_to(tmp_path)
    with pytest.raises(BadInput, match="lead out"):
        download(real_api, job.id, artifact(real_api, job), tmp_path / "into")


def test_choosing(real_api: Api, job: RunningJob) -> None:
    known = real_api.artifacts(job.id)
    assert [item.path for item in select_artifacts(known, [])] == ["metrics.json", "model/weights.bin"]
    assert [item.path for item in select_artifacts(known, ["model"])] == ["model/weights.bin"]
    assert [item.path for item in select_artifacts(known, ["*.json", "metrics.json"])] == ["metrics.json"]
    with pytest.raises(NotFound) as caught:
        select_artifacts(known, ["nosuch"])
    assert "metrics.json" in caught.value.fix


def checkpoint(
    real: RealServer, real_api: Api, name: str = "step_00000600.pt", form: str = "file"
) -> tuple[str, CheckpointView]:
    job = real.start()
    real.run(job.checkpoint, name, DATA, 600, form=form)
    return job.id, real_api.checkpoint(job.id, "latest")


def test_a_checkpoint_arrives_whole_also_after_a_break(real_api: Api, real: RealServer, tmp_path: Path) -> None:
    job, found = checkpoint(real, real_api)
    real.faults.cut("*/content", after=300_000)
    path = download_checkpoint(real_api, job, found, tmp_path)
    assert (path.name, path.read_bytes()) == ("step_00000600.pt", DATA)


def test_a_folder_is_an_archive(real_api: Api, real: RealServer, tmp_path: Path) -> None:
    job, found = checkpoint(real, real_api, "step_600", "folder")
    assert download_checkpoint(real_api, job, found, tmp_path) == tmp_path / "step_600.tar"


def test_a_checkpoint_that_is_not_what_was_listed_is_refused(real_api: Api, real: RealServer, tmp_path: Path) -> None:
    job, found = checkpoint(real, real_api)
    other = found.model_copy(update={"sha256": "0" * 64})
    with pytest.raises(Trouble, match="was damaged on the way"):
        download_checkpoint(real_api, job, other, tmp_path / "into")
    assert list((tmp_path / "into").iterdir()) == []


def test_a_checkpoints_name_never_leads_out_of_the_folder(real_api: Api, real: RealServer, tmp_path: Path) -> None:
    real.faults.change("*/checkpoints/*", lambda view: {**view, "name": "../evil.pt"})
    job, found = checkpoint(real, real_api)
    with pytest.raises(BadInput):
        download_checkpoint(real_api, job, found, tmp_path)
