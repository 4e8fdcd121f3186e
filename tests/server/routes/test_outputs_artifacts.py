"""Artifacts and bundles: whole, in ranges, and never more than allowed."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import httpx2
import pytest
from tests.control.harness import pieces, sha
from tests.server.app import App

from crucible.control.db import schema as t
from crucible.server.http.lingering_close import MOST_BYTES
from crucible.server.http.ranges import ByteRange, RangeNotThere, parse_range
from crucible.storage.layout import artifact_key, output_key
from crucible.wire.documents.messages import MessageKind

DATA = b"0123456789"
ETAG = f'"{hashlib.sha256(DATA).hexdigest()}"'
URL = "/api/v1/jobs/last/artifacts/out/model.bin"


@pytest.fixture(autouse=True)
async def job(app: App) -> str:
    job, runner = await app.harness.running()
    for path, data in {"out/model.bin": DATA, "empty": b"", 'a "b"é.html': b"<script>"}.items():
        await app.control.agents.put_artifact(runner.attempt, 0, path, sha(data), pieces(data))
        await runner.say(MessageKind.ARTIFACT, path=path, size=len(data), sha256=sha(data))
    return job


async def test_the_list(client: httpx2.AsyncClient, app: App, job: str) -> None:
    items = (await client.get("/api/v1/jobs/last/artifacts")).json()["items"]
    attempt = (await app.harness.attempt(job)).id
    model = {"path": "out/model.bin", "size": 10, "sha256": sha(DATA), "attempt": 1, "attempt_id": attempt}
    assert [item["path"] for item in items] == ['a "b"é.html', "empty", "out/model.bin"]
    assert items[2] == model


async def test_a_whole_file(client: httpx2.AsyncClient) -> None:
    answer = await client.get(URL)
    assert (answer.status_code, answer.content) == (200, DATA)
    assert answer.headers["ETag"] == ETAG
    assert answer.headers["Accept-Ranges"] == "bytes"
    assert answer.headers["Content-Length"] == "10"


async def test_a_file_under_the_key_of_version_0_1_0_though_its_row_names_another(
    client: httpx2.AsyncClient, app: App, job: str
) -> None:
    attempt, store = (await app.harness.attempt(job)).id, app.harness.ports.store
    store.put(artifact_key(job, attempt, "out/model.bin"), DATA)
    store.delete(output_key(job, attempt, sha(DATA)))
    answer = await client.get(URL, headers={"Range": "bytes=2-6"})
    assert (answer.status_code, answer.content) == (206, b"23456")


async def test_a_range(client: httpx2.AsyncClient) -> None:
    answer = await client.get(URL, headers={"Range": "bytes=2-6"})
    assert (answer.status_code, answer.content) == (206, b"23456")
    assert answer.headers["Content-Range"] == "bytes 2-6/10"
    assert answer.headers["Content-Length"] == "5"


async def test_a_range_after_the_end(client: httpx2.AsyncClient) -> None:
    answer = await client.get(URL, headers={"Range": "bytes=10-"})
    assert answer.status_code == 416
    assert answer.headers["Content-Range"] == "bytes */10"
    assert answer.json()["size"] == 10


async def test_a_range_of_another_file_gives_the_whole(client: httpx2.AsyncClient) -> None:
    answer = await client.get(URL, headers={"Range": "bytes=2-", "If-Range": '"other"'})
    assert (answer.status_code, answer.content) == (200, DATA)


async def test_a_range_of_the_same_file_goes_on(client: httpx2.AsyncClient) -> None:
    answer = await client.get(URL, headers={"Range": "bytes=8-", "If-Range": ETAG})
    assert (answer.status_code, answer.content) == (206, b"89")


async def test_a_reader_that_has_it_gets_nothing(client: httpx2.AsyncClient) -> None:
    answer = await client.get(URL, headers={"If-None-Match": f'"x", W/{ETAG}'})
    assert (answer.status_code, answer.content) == (304, b"")


async def test_head_tells_the_size_alone(client: httpx2.AsyncClient) -> None:
    answer = await client.head(URL)
    assert (answer.headers["Content-Length"], answer.content) == ("10", b"")


async def test_an_empty_file(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/api/v1/jobs/last/artifacts/empty")
    assert (answer.status_code, answer.content) == (200, b"")


async def test_a_page_made_by_a_job_is_not_shown_as_ours(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/api/v1/jobs/last/artifacts/a%20%22b%22%C3%A9.html")
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == "attachment; filename*=utf-8''a%20%22b%22%C3%A9.html"


@pytest.mark.parametrize("path", ["nothing", "../key", "..%2f..%2fkey"])
async def test_a_path_that_is_no_artifact(client: httpx2.AsyncClient, path: str) -> None:
    assert (await client.get(f"/api/v1/jobs/last/artifacts/{path}")).status_code == 404


@pytest.mark.parametrize(
    ("header", "size", "expected"),
    [
        (None, 10, None),
        ("bytes=0-", 10, ByteRange(0, 10, 10)),
        ("bytes=3-3", 10, ByteRange(3, 4, 10)),
        ("bytes=3-999", 10, ByteRange(3, 10, 10)),
        ("bytes=-3", 10, ByteRange(7, 10, 10)),
        ("bytes=-99", 10, ByteRange(0, 10, 10)),
        ("BYTES= 1-2 ", 10, ByteRange(1, 3, 10)),
        ("bytes=5-2", 10, None),
        ("bytes=-", 10, None),
        ("bytes=0-1,3-4", 10, None),
        ("items=0-1", 10, None),
        ("bytes=x-y", 10, None),
        ("bytes=" + "9" * 30 + "-", 10, None),
        ("bytes=\u0661-", 10, None),
    ],
)
def test_ranges_are_read_as_the_standard_says(header: str | None, size: int, expected: ByteRange | None) -> None:
    assert parse_range(header, size) == expected


@pytest.mark.parametrize(("header", "size"), [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=-1", 0)])
def test_ranges_that_are_not_there(header: str, size: int) -> None:
    with pytest.raises(RangeNotThere):
        parse_range(header, size)


async def test_a_bundle_is_stored_once(client: httpx2.AsyncClient, app: App) -> None:
    url = f"/api/v1/bundles/{sha(b'code')}"
    assert (await client.head(url)).status_code == 404
    assert (await client.put(url, content=pieces(b"co", b"", b"de"))).status_code == 201
    assert (await client.put(url, content=b"code")).status_code == 200
    assert (await client.head(url)).status_code == 200
    assert [row["sha256"] for row in await app.harness.rows(t.bundles)] == [sha(b"code")]


async def test_a_bundle_of_another_hash_is_refused(client: httpx2.AsyncClient, app: App) -> None:
    answer = await client.put(f"/api/v1/bundles/{sha(b'code')}", content=b"other")
    assert (answer.status_code, answer.json()["code"]) == (422, "hash_mismatch")
    assert await app.harness.count(t.bundles) == 0


async def test_a_bundle_that_says_it_is_too_large_is_not_read(client: httpx2.AsyncClient, app: App) -> None:
    answer = await client.put(f"/api/v1/bundles/{sha(b'')}", content=b"x" * 1001)
    assert (answer.status_code, answer.json()["limit"]) == (413, 1000)
    assert await app.harness.count(t.bundles) == 0


async def test_a_bundle_that_grows_too_large_is_cut_off(client: httpx2.AsyncClient, app: App) -> None:
    read = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            read.append(1)
            yield b"x" * 1024**2

    answer = await client.put(f"/api/v1/bundles/{sha(b'')}", content=endless())
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert len(read) <= MOST_BYTES // 1024**2 + 3  # what is dropped, so that the answer gets through, has its bound
    assert await app.harness.count(t.bundles) == 0


@pytest.mark.parametrize("name", ["x", "A" * 64, "a" * 63, "../" + "a" * 61])
async def test_a_bundle_is_named_by_its_hash(client: httpx2.AsyncClient, name: str) -> None:
    assert (await client.put(f"/api/v1/bundles/{name}", content=b"x")).status_code in (404, 422)


async def test_a_json_body_has_its_limit(client: httpx2.AsyncClient, app: App) -> None:
    answer = await client.post("/api/v1/jobs", content=b" " * (8 * 1024**2 + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_a_json_body_that_grows_has_the_same_limit(client: httpx2.AsyncClient) -> None:
    answer = await client.post(
        "/api/v1/jobs", content=pieces(*[b" " * 1024**2] * 9), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 413
