"""Checkpoints over HTTP: asked for, listed, and fetched."""

from __future__ import annotations

import hashlib

import httpx2
import pytest
from tests.server.fake_control import JOB, FakeCheckpoint, FakeControl, FakeJob

DATA = b"0123456789"
ETAG = f'"{hashlib.sha256(DATA).hexdigest()}"'
URL = f"/api/v1/jobs/{JOB}/checkpoints"
FOLDER = "ckp-00000000000000000000000002"
FILE = "ckp-00000000000000000000000001"


@pytest.fixture(autouse=True)
def job(control: FakeControl) -> FakeJob:
    newest = FakeCheckpoint(FOLDER, "step 200", b"a tar archive", "folder", 200)
    return control.add(FakeJob(checkpoints=[newest, FakeCheckpoint(FILE, "step_100.pt", DATA, best=True)]))


async def test_the_list(http: httpx2.AsyncClient) -> None:
    items = (await http.get(URL)).json()["items"]
    assert [(item["step"], item["latest"], item["best"]) for item in items] == [(200, True, False), (100, False, True)]


@pytest.mark.parametrize("ref", [FILE, "step_100.pt", "best"])
async def test_one_is_named_in_several_ways(http: httpx2.AsyncClient, ref: str) -> None:
    assert (await http.get(f"{URL}/{ref}")).json()["id"] == FILE
    assert (await http.get(f"{URL}/{ref}/content")).content == DATA


async def test_a_file_keeps_its_name_and_a_folder_comes_as_an_archive(http: httpx2.AsyncClient) -> None:
    file, folder = await http.get(f"{URL}/best/content"), await http.get(f"{URL}/latest/content")
    assert file.headers["Content-Disposition"] == "attachment; filename*=utf-8''step_100.pt"
    assert folder.headers["Content-Disposition"] == "attachment; filename*=utf-8''step%20200.tar"


async def test_a_broken_download_goes_on(http: httpx2.AsyncClient) -> None:
    rest = await http.get(f"{URL}/{FILE}/content", headers={"Range": "bytes=4-", "If-Range": ETAG})
    assert (rest.status_code, rest.content) == (206, DATA[4:])
    again = await http.get(f"{URL}/{FILE}/content", headers={"If-None-Match": ETAG})
    assert again.status_code == 304
    beyond = await http.get(f"{URL}/{FILE}/content", headers={"Range": "bytes=99-"})
    assert beyond.status_code == 416
    head = await http.head(f"{URL}/{FILE}/content")
    assert (head.status_code, head.headers["Content-Length"], head.content) == (200, "10", b"")


@pytest.mark.parametrize("path", ["nosuch", "nosuch/content"])
async def test_an_unknown_one_is_told_with_the_command_that_lists_them(http: httpx2.AsyncClient, path: str) -> None:
    answer = await http.get(f"{URL}/{path}")
    assert answer.status_code == 404
    assert f"crucible checkpoints {JOB}" in answer.json()["fix"]


async def test_a_running_program_is_asked_for_one(http: httpx2.AsyncClient, control: FakeControl) -> None:
    answer = await http.post(f"/api/v1/jobs/{JOB}/checkpoint")
    assert (answer.status_code, answer.json()["id"]) == (202, JOB)
    assert control.asked == [{"checkpoint_now": JOB}]


async def test_nothing_that_runs_cannot_be_asked(http: httpx2.AsyncClient, job: FakeJob) -> None:
    job.status = "completed"
    assert (await http.post(f"/api/v1/jobs/{JOB}/checkpoint")).status_code == 409
