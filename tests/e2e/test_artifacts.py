"""What a job wrote can be fetched, whole or in pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from textwrap import dedent

import httpx2 as httpx
import pytest
from tests.harness import Deployment, View, python, shell

SIZE = 300_000
CONTENT = bytes(n % 251 for n in range(SIZE))
WRITER = f"""
    import os, pathlib
    out = pathlib.Path(os.environ["CRUCIBLE_OUTPUT_DIR"])
    (out / "deep" / "er").mkdir(parents=True)
    (out / "deep" / "er" / "data.bin").write_bytes(bytes(n % 251 for n in range({SIZE})))
    (out / "näme with space.txt").write_text("x")
    (out / "empty").touch()
    (out / "link").symlink_to("empty")
    (out / "passwd").symlink_to("/etc/passwd")
    (out / "etc").symlink_to("/etc")
    os.mkfifo(out / "pipe")
"""


@pytest.fixture(scope="module")
def job(crucible: Deployment) -> str:
    job = crucible.submit(python(dedent(WRITER)))
    assert crucible.wait(job)["status"] == "completed", crucible.log(job)
    return job


@pytest.fixture
def client(crucible: Deployment) -> Iterator[httpx.Client]:
    with crucible.client() as client:
        yield client


def artifacts(crucible: Deployment, job: str) -> dict[str, View]:
    return {item["path"]: item for item in crucible.get(f"/api/v1/jobs/{job}/artifacts")["items"]}


def test_nested_files_with_size_and_hash(crucible: Deployment, job: str) -> None:
    found = artifacts(crucible, job)
    assert {"deep/er/data.bin", "näme with space.txt", "empty"} <= set(found)
    data = found["deep/er/data.bin"]
    assert (data["size"], data["sha256"]) == (SIZE, hashlib.sha256(CONTENT).hexdigest())


def test_what_leads_out_or_is_no_file_is_left_out(crucible: Deployment, job: str) -> None:
    found = artifacts(crucible, job)
    assert not [path for path in found if "passwd" in path or path.startswith(("etc", "pipe"))]
    said = str(crucible.events(job)) + crucible.log(job).decode()
    assert "passwd" in said
    assert crucible.job(job)["outputs_left_out"] == "3 outputs were not stored: etc, passwd, pipe"
    shown = crucible.cli("status", job)
    assert "3 outputs were not stored: etc, passwd, pipe" in shown.stdout


def test_files_in_the_working_directory(crucible: Deployment, client: httpx.Client) -> None:
    job = crucible.submit(python("import os; os.mkdir('out'); open('out/model.pt', 'w').write('weights')"))
    assert crucible.wait(job)["status"] == "completed"
    assert list(artifacts(crucible, job)) == ["out/model.pt"]
    assert client.get(f"/api/v1/jobs/{job}/artifacts/out/model.pt").content == b"weights"


@pytest.mark.parametrize(("outputs", "kept"), [(["*.pt"], ["model.pt"]), ([], [])])
def test_only_what_was_chosen_of_the_working_directory(
    crucible: Deployment, outputs: list[str], kept: list[str]
) -> None:
    job = crucible.submit(python("open('model.pt', 'w').write('w'); open('log.csv', 'w').write('l')", outputs=outputs))
    assert crucible.wait(job)["outputs"] == outputs
    assert list(artifacts(crucible, job)) == kept


def test_the_whole_file(client: httpx.Client, job: str) -> None:
    answer = client.get(f"/api/v1/jobs/{job}/artifacts/deep/er/data.bin")
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert client.get(f"/api/v1/jobs/{job}/artifacts/näme with space.txt").content == b"x"
    assert client.get(f"/api/v1/jobs/{job}/artifacts/empty").content == b""


def test_a_broken_download_goes_on(client: httpx.Client, job: str) -> None:
    url = f"/api/v1/jobs/{job}/artifacts/deep/er/data.bin"
    first = client.get(url, headers={"Range": "bytes=0-99999"})
    assert (first.status_code, first.headers["Content-Range"]) == (206, f"bytes 0-99999/{SIZE}")
    rest = client.get(url, headers={"Range": "bytes=100000-", "If-Range": first.headers["ETag"]})
    assert rest.status_code == 206
    assert first.content + rest.content == CONTENT
    changed = client.get(url, headers={"Range": "bytes=100000-", "If-Range": '"another"'})
    assert (changed.status_code, changed.content) == (200, CONTENT)
    assert client.get(url, headers={"Range": "bytes=-5"}).content == CONTENT[-5:]
    assert client.get(url, headers={"Range": f"bytes={SIZE}-"}).status_code == 416
    assert client.get(url, headers={"If-None-Match": first.headers["ETag"]}).status_code == 304


def test_one_that_is_not_there(client: httpx.Client, job: str) -> None:
    answer = client.get(f"/api/v1/jobs/{job}/artifacts/other.bin")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    for path in ("..%2f..%2f..%2ftoken", "%2fetc%2fpasswd"):
        assert client.get(f"/api/v1/jobs/{job}/artifacts/{path}").status_code in (404, 422)


def test_a_failed_job_leaves_its_files_too(crucible: Deployment) -> None:
    job = crucible.submit(shell('echo half > "$CRUCIBLE_OUTPUT_DIR/half.txt"; exit 1'))
    crucible.wait(job)
    assert list(artifacts(crucible, job)) == ["half.txt"]
