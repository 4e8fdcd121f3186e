from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.fake_server import JOB, FakeServer, checkpoint_view, completed

from crucible.client.api import Api
from crucible.client.downloads import choose, download, download_checkpoint
from crucible.core.errors import BadInput, NotFound, Trouble
from crucible.core.views.jobs import CheckpointView
from crucible.core.views.records import ArtifactView

pytestmark = pytest.mark.enable_socket

DATA = bytes(range(256)) * 5000


@pytest.fixture(autouse=True)
def a_job(server: FakeServer) -> None:
    server.jobs[JOB] = completed()
    server.artifacts = {"model/weights.bin": DATA, "metrics.json": b"{}"}


def artifact(api: Api, path: str = "model/weights.bin") -> ArtifactView:
    return next(item for item in api.artifacts(JOB) if item.path == path)


def test_an_artifact_arrives_whole(api: Api, tmp_path: Path) -> None:
    seen: list[int] = []
    path = download(api, JOB, artifact(api), tmp_path, progress=seen.append)
    assert path == tmp_path / "model" / "weights.bin"
    assert path.read_bytes() == DATA
    assert seen[-1] == len(DATA)
    assert [item.name for item in path.parent.iterdir()] == ["weights.bin"]


def test_a_broken_download_goes_on_where_it_stopped(api: Api, server: FakeServer, tmp_path: Path) -> None:
    wanted = artifact(api)
    server.cut_downloads_at = 300_000
    assert download(api, JOB, wanted, tmp_path).read_bytes() == DATA


def test_a_part_from_earlier_is_used(api: Api, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights.bin.part").write_bytes(DATA[:1000])
    assert download(api, JOB, artifact(api), tmp_path).read_bytes() == DATA


def test_a_file_that_is_there_and_sound_is_kept(api: Api, server: FakeServer, tmp_path: Path) -> None:
    wanted = artifact(api)
    download(api, JOB, wanted, tmp_path)
    before = len(server.requests)
    download(api, JOB, wanted, tmp_path)
    assert len(server.requests) == before


def test_a_damaged_file_is_trouble_and_leaves_nothing(api: Api, tmp_path: Path) -> None:
    wanted = artifact(api)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights.bin.part").write_bytes(b"x" * 1000)
    with pytest.raises(Trouble, match="damaged"):
        download(api, JOB, wanted, tmp_path)
    assert list((tmp_path / "model").iterdir()) == []


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "a\\b"])
def test_a_name_that_leads_out_is_refused(api: Api, tmp_path: Path, name: str) -> None:
    evil = ArtifactView(path=name, size=1, sha256="0" * 64)
    with pytest.raises(BadInput, match="lead out"):
        download(api, JOB, evil, tmp_path)


def test_a_link_in_the_target_folder_is_not_followed(api: Api, tmp_path: Path) -> None:
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "model").symlink_to(tmp_path)
    with pytest.raises(BadInput, match="lead out"):
        download(api, JOB, artifact(api), tmp_path / "into")


def test_choosing(api: Api) -> None:
    known = api.artifacts(JOB)
    assert [item.path for item in choose(known, [])] == ["model/weights.bin", "metrics.json"]
    assert [item.path for item in choose(known, ["model"])] == ["model/weights.bin"]
    assert [item.path for item in choose(known, ["*.json", "metrics.json"])] == ["metrics.json"]
    with pytest.raises(NotFound) as caught:
        choose(known, ["nosuch"])
    assert "metrics.json" in caught.value.fix


def checkpoint(server: FakeServer, **changes: object) -> CheckpointView:
    view = checkpoint_view(DATA, **changes)
    server.checkpoints, server.contents = [view], {view["id"]: DATA}
    return CheckpointView.model_validate(view)


def test_a_checkpoint_arrives_whole_also_after_a_break(api: Api, server: FakeServer, tmp_path: Path) -> None:
    server.cut_downloads_at = 300_000
    path = download_checkpoint(api, JOB, checkpoint(server), tmp_path)
    assert (path.name, path.read_bytes()) == ("step_00000600.pt", DATA)


def test_a_folder_is_an_archive(api: Api, server: FakeServer, tmp_path: Path) -> None:
    path = download_checkpoint(api, JOB, checkpoint(server, name="step_600", form="folder"), tmp_path)
    assert path == tmp_path / "step_600.tar"


def test_a_checkpoint_that_is_not_what_was_listed_is_refused(api: Api, server: FakeServer, tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="arrived damaged"):
        download_checkpoint(api, JOB, checkpoint(server, sha256="0" * 64), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoints_name_never_leads_out_of_the_folder(api: Api, server: FakeServer, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        download_checkpoint(api, JOB, checkpoint(server, name="../evil.pt"), tmp_path)
