"""Checkpoints over HTTP: asked for, listed, and fetched."""

from __future__ import annotations

import hashlib

import httpx2
import pytest
from tests.control.harness import FakeRunner, pieces, sha
from tests.server.app import App

from crucible.wire.documents.messages import MessageKind

DATA = b"0123456789"
ETAG = f'"{hashlib.sha256(DATA).hexdigest()}"'
JOB = "/api/v1/jobs/last"
URL = f"{JOB}/checkpoints"


@pytest.fixture(autouse=True)
async def runner(app: App) -> FakeRunner:
    _, runner = await app.harness.running()
    await save(app, runner, DATA, name="step_100.pt", form="file", step=100, metric=0.5)
    await save(app, runner, b"a tar archive", name="step 200", form="folder", step=200, metric=None)
    return runner


async def save(app: App, runner: FakeRunner, data: bytes, **more: object) -> None:
    await app.control.agents.put_checkpoint(runner.attempt, 0, sha(data), pieces(data))
    await runner.say(MessageKind.CHECKPOINT, size=len(data), sha256=sha(data), **more)


async def test_the_list(client: httpx2.AsyncClient) -> None:
    items = (await client.get(URL)).json()["items"]
    assert [(item["step"], item["latest"], item["best"]) for item in items] == [(200, True, False), (100, False, True)]


async def test_one_is_named_in_several_ways(client: httpx2.AsyncClient) -> None:
    newest, file = (await client.get(URL)).json()["items"]
    for ref in (file["id"], file["short"], "step_100.pt", "best"):
        assert (await client.get(f"{URL}/{ref}")).json() == file != newest
        assert (await client.get(f"{URL}/{ref}/content")).content == DATA


async def test_a_file_keeps_its_name_and_a_folder_comes_as_an_archive(client: httpx2.AsyncClient) -> None:
    file, folder = await client.get(f"{URL}/best/content"), await client.get(f"{URL}/latest/content")
    assert file.headers["Content-Disposition"] == "attachment; filename*=utf-8''step_100.pt"
    assert folder.headers["Content-Disposition"] == "attachment; filename*=utf-8''step%20200.tar"


async def test_a_broken_download_goes_on(client: httpx2.AsyncClient) -> None:
    rest = await client.get(f"{URL}/best/content", headers={"Range": "bytes=4-", "If-Range": ETAG})
    assert (rest.status_code, rest.content) == (206, DATA[4:])
    again = await client.get(f"{URL}/best/content", headers={"If-None-Match": ETAG})
    assert again.status_code == 304
    beyond = await client.get(f"{URL}/best/content", headers={"Range": "bytes=99-"})
    assert beyond.status_code == 416
    head = await client.head(f"{URL}/best/content")
    assert (head.status_code, head.headers["Content-Length"], head.content) == (200, "10", b"")


@pytest.mark.parametrize("path", ["nosuch", "nosuch/content"])
async def test_an_unknown_one_is_told_with_the_command_that_lists_them(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(f"{URL}/{path}")
    assert answer.status_code == 404
    assert "crucible checkpoints job-" in answer.json()["fix"]


async def test_a_running_program_is_asked_for_one(client: httpx2.AsyncClient, app: App) -> None:
    answer = await client.post(f"{JOB}/checkpoint")
    assert (answer.status_code, answer.json()["phase"]) == (202, "running")
    assert (await app.harness.world(answer.json()["id"])).job.checkpoint == 1


async def test_nothing_that_runs_cannot_be_asked(client: httpx2.AsyncClient, runner: FakeRunner) -> None:
    await runner.end()
    assert (await client.post(f"{JOB}/checkpoint")).status_code == 409
