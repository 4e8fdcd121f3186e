"""The HTTP API at its edges: what it refuses, how it says so, and that nothing is half-stored."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.e2e.support import MiB, packed, upload
from tests.harness import Deployment, View, shell
from tests.wire.hostile import a_file, a_link, built

NO_JOB = "job-00000000000000000000000000"


@pytest.fixture
def client(crucible: Deployment) -> Iterator[httpx.Client]:
    with crucible.client() as client:
        yield client


@pytest.fixture
def stranger(crucible: Deployment) -> Iterator[httpx.Client]:
    """A client without a token."""
    with httpx.Client(base_url=crucible.discovery["url"], timeout=10) as client:
        yield client


@pytest.fixture
def nothing_stored(client: httpx.Client) -> Iterator[None]:
    """Whatever the test does, there is no new job afterwards."""
    before = client.get("/api/v1/jobs", params={"limit": 1}).json()["items"][:1]
    yield
    after = client.get("/api/v1/jobs", params={"limit": 1}).json()["items"][:1]
    assert [job["id"] for job in after] == [job["id"] for job in before]


def problem_of(answer: httpx.Response, status: int, code: str) -> View:
    """The answer is a whole problem of this kind."""
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    found: View = answer.json()
    assert {"type", "title", "status", "detail", "code", "fix", "request_id"} <= set(found)
    assert (found["status"], found["code"]) == (status, code)
    assert found["request_id"] == answer.headers["X-Request-ID"]
    assert found["detail"]
    assert found["fix"]
    return found


class TestSubmit:
    def test_the_same_key_gives_the_same_job(self, crucible: Deployment, client: httpx.Client) -> None:
        key = {"Idempotency-Key": "once-only"}
        first = client.post("/api/v1/jobs", json=shell("echo one"), headers=key)
        again = client.post("/api/v1/jobs", json=shell("echo one"), headers=key)
        assert (first.status_code, again.status_code) == (201, 200)
        job = first.json()["id"]
        assert again.json()["id"] == job
        assert first.headers["Location"] == f"/api/v1/jobs/{job}"
        other = problem_of(client.post("/api/v1/jobs", json=shell("echo two"), headers=key), 409, "conflict")
        assert other["job"] == job
        assert crucible.wait(job)["status"] == "completed"
        assert client.post("/api/v1/jobs", json=shell("echo one"), headers=key).json()["id"] == job
        assert crucible.log(job) == b"one\n"

    @pytest.mark.usefixtures("nothing_stored")
    @pytest.mark.parametrize("key", ["x" * 201, "with space", ""])
    def test_a_key_that_is_none(self, client: httpx.Client, key: str) -> None:
        answer = client.post("/api/v1/jobs", json=shell("true"), headers={"Idempotency-Key": key})
        problem_of(answer, 422, "bad_input")

    @pytest.mark.usefixtures("nothing_stored")
    @pytest.mark.parametrize(
        ("more", "meant"),
        [({"tier": "CPU_SMAL"}, "CPU_SMALL"), ({"backend": "locl"}, "local")],
    )
    def test_an_unknown_name(self, client: httpx.Client, more: View, meant: str) -> None:
        found = problem_of(client.post("/api/v1/jobs", json=shell("true", **more)), 422, "unknown_name")
        assert f"Did you mean '{meant}'?" in found["fix"]

    @pytest.mark.usefixtures("nothing_stored")
    @pytest.mark.parametrize(
        "resources",
        [
            '{"cpus": 1e9}',
            '{"cpus": -1}',
            '{"cpus": 0}',
            '{"cpus": NaN}',
            '{"cpus": Infinity}',
            '{"memory_bytes": -1}',
            '{"memory_bytes": 1}',
            '{"memory_bytes": 1e40}',
            '{"gpus": -1}',
            '{"gpus": 1.5}',
            '{"seconds": 0}',
            '{"seconds": NaN}',
            '{"seconds": 1e300}',
            '{"cups": 1}',
        ],
    )
    def test_an_absurd_size(self, client: httpx.Client, resources: str) -> None:
        body = f'{{"command": ["true"], "resources": {resources}}}'
        answer = client.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        assert "resources" in problem_of(answer, 422, "bad_input")["detail"]

    @pytest.mark.usefixtures("nothing_stored")
    @pytest.mark.parametrize(
        "spec",
        [
            {},
            {"command": []},
            {"command": [""]},
            {"command": "true"},
            {"command": ["x" * 200_000]},
            {"command": ["a\0b"]},
            {"command": ["true"], "unknown": 1},
            {"command": ["true"], "env": {"1BAD": "x"}},
            {"command": ["true"], "env": {"CRUCIBLE_JOB_ID": "x"}},
            {"command": ["true"], "in_place": "relative"},
            {"command": ["true"], "data": [{"name": "../x", "source": "/tmp"}]},
            {"command": ["true"], "data": [{"name": "..", "source": "/tmp"}]},
            {"command": ["true"], "bundle": "not-a-hash"},
            {"command": ["true"], "bundle": "0" * 64},
            {"command": ["true"], "name": "a/b"},
            {"command": ["true"], "grace_seconds": -1},
            {"command": ["true"], "retries": {"user": -1}},
        ],
        ids=lambda spec: str(spec)[:80],
    )
    def test_a_spec_that_is_not_right(self, client: httpx.Client, spec: View) -> None:
        problem_of(client.post("/api/v1/jobs", json=spec), 422, "bad_input")

    @pytest.mark.usefixtures("nothing_stored")
    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000])
    def test_a_body_that_is_no_spec(self, client: httpx.Client, body: bytes) -> None:
        answer = client.post("/api/v1/jobs", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422), answer.text
        assert answer.json()["fix"]

    @pytest.mark.usefixtures("nothing_stored")
    def test_a_body_over_the_limit(self, client: httpx.Client) -> None:
        answer = client.post("/api/v1/jobs", json=shell("true", env={"A": "x" * 9 * MiB}))
        problem_of(answer, 413, "too_large")


class TestFind:
    def test_by_id_by_an_ending_and_the_last(self, crucible: Deployment, client: httpx.Client) -> None:
        job = crucible.submit(shell("true"))
        for ref in (job, f"job-{job[-6:]}", job[-6:], job[-6:].upper(), "last"):
            assert client.get(f"/api/v1/jobs/{ref}").json()["id"] == job
        crucible.wait(job)

    @pytest.mark.parametrize("ref", [NO_JOB, "zzzzz", "ab", "job-zzzzzz", "%25", "..%2f"])
    def test_one_that_is_not_there(self, client: httpx.Client, ref: str) -> None:
        for path in ("", "/events", "/logs", "/metrics", "/artifacts"):
            answer = client.get(f"/api/v1/jobs/{ref}{path}")
            assert answer.status_code == 404, answer.text
            assert answer.json()["fix"]
        assert client.post(f"/api/v1/jobs/{ref}/cancel").status_code == 404

    def test_an_ending_that_fits_several(self, crucible: Deployment, client: httpx.Client) -> None:
        job = crucible.submit(shell("true"))
        crucible.wait(job)
        twin = f"job-{'0' * 20}{job[-6:]}"
        crucible.stop()
        with closing(sqlite3.connect(crucible.home / "crucible.db")) as db, db:
            columns = [row[1] for row in db.execute("PRAGMA table_info(jobs)")]
            taken = ", ".join("?" if name == "id" else f'"{name}"' for name in columns)
            db.execute(f"INSERT INTO jobs SELECT {taken} FROM jobs WHERE id = ?", (twin, job))
        crucible.start()
        found = problem_of(client.get(f"/api/v1/jobs/{job[-6:]}"), 409, "conflict")
        assert found["candidates"]
        assert client.get(f"/api/v1/jobs/{job}").json()["id"] == job

    def test_pages_of_jobs(self, crucible: Deployment, client: httpx.Client) -> None:
        jobs = [crucible.submit(shell("true")) for _ in range(3)]
        for job in jobs:
            crucible.wait(job)
        first = client.get("/api/v1/jobs", params={"limit": 2}).json()
        second = client.get("/api/v1/jobs", params={"limit": 1, "cursor": first["next"]}).json()
        assert [item["id"] for item in first["items"] + second["items"]] == jobs[::-1]
        done = client.get("/api/v1/jobs", params={"status": "completed", "limit": 500}).json()["items"]
        assert set(jobs) <= {item["id"] for item in done}
        assert client.get("/api/v1/jobs", params={"active": True}).json()["items"] == []

    @pytest.mark.parametrize(
        "query",
        ["cursor=nonsense", "limit=0", "limit=501", "limit=x", "status=complete", "cursor=", "active=maybe"],
    )
    def test_a_bad_cursor_or_filter(self, client: httpx.Client, query: str) -> None:
        answer = client.get(f"/api/v1/jobs?{query}")
        assert answer.status_code == 422, answer.text
        assert answer.json()["fix"]

    @pytest.mark.parametrize("path", ["events?after=-1", "events?after=x", "logs?offset=x", "logs?attempt=0"])
    def test_a_bad_place_in_a_stream(self, crucible: Deployment, client: httpx.Client, path: str) -> None:
        job = crucible.submit(shell("true"))
        crucible.wait(job)
        problem_of(client.get(f"/api/v1/jobs/{job}/{path}"), 422, "bad_input")

    def test_an_attempt_that_is_not_there(self, crucible: Deployment, client: httpx.Client) -> None:
        job = crucible.submit(shell("true"))
        crucible.wait(job)
        problem_of(client.get(f"/api/v1/jobs/{job}/logs?attempt=7"), 404, "not_found")


class TestBundles:
    def test_one_is_stored_once(self, client: httpx.Client) -> None:
        archive = packed(main="print('stored once')")
        url = f"/api/v1/bundles/{hashlib.sha256(archive).hexdigest()}"
        assert client.head(url).status_code == 404
        assert client.put(url, content=archive).status_code == 201
        assert client.head(url).status_code == 200
        assert client.put(url, content=archive).status_code == 200

    def test_a_wrong_hash(self, client: httpx.Client) -> None:
        url = f"/api/v1/bundles/{'a' * 64}"
        answer = client.put(url, content=packed(main="print(1)"))
        assert answer.status_code == 422, answer.text
        assert answer.json()["fix"]
        assert client.head(url).status_code == 404

    def test_over_the_limit(self, crucible: Deployment, client: httpx.Client) -> None:
        big = b"x" * (1 * MiB + 1)
        url = f"/api/v1/bundles/{hashlib.sha256(big).hexdigest()}"
        problem_of(client.put(url, content=big), 413, "too_large")
        pieces = (big[at : at + 65536] for at in range(0, len(big), 65536))
        problem_of(client.put(url, content=pieces), 413, "too_large")
        assert client.head(url).status_code == 404
        kept = [path for path in crucible.home.rglob("*") if path.is_file() and path.stat().st_size >= MiB]
        assert not [path for path in kept if path.read_bytes()[:100] == big[:100]]

    @pytest.mark.parametrize(
        "archive",
        [
            built(a_file("../escaped.txt")),
            built(a_file("good"), a_file("a/../../../escaped.txt")),
            built(a_link("out", ".."), a_file("out/escaped.txt")),
            built(a_link("out", "/etc/passwd")),
            built(a_file("/tmp/crucible-escaped.txt")),
            b"this is no archive",
            b"",
            packed(main="pass")[:-20],
        ],
        ids=["up", "up deep", "through a link", "link out", "absolute", "no archive", "empty", "cut off"],
    )
    def test_a_hostile_archive(self, crucible: Deployment, archive: bytes) -> None:
        job = crucible.submit({"command": ["/bin/true"], "bundle": upload(crucible, archive)})
        view = crucible.wait(job)
        assert (view["status"], view["reason"]["code"]) == ("failed", "staging_failed")
        assert "cannot be unpacked" in view["reason"]["message"] + crucible.log(job).decode()
        # The agent removes the attempt's folder meanwhile, so folders may vanish during the walk.
        names = [name for _, _, files in os.walk(crucible.home.parent) for name in files]
        assert not [name for name in names if "escaped" in name]
        assert not Path("/tmp/crucible-escaped.txt").exists()


OPEN = {"/healthz", "/readyz", "/login", "/api/v1/login", "/api/v1/login/oidc", "/api/v1/login/oidc/callback"}
"""What whoever has no token yet may ask for."""


class TestManners:
    def test_health_and_readiness_need_no_token(self, crucible: Deployment, stranger: httpx.Client) -> None:
        assert stranger.get("/healthz").status_code == 200
        ready = stranger.get("/readyz")
        assert (ready.status_code, ready.json()["ready"]) == (200, True)
        assert ready.json()["nonce"] == crucible.discovery["nonce"]
        assert crucible.token not in ready.text

    def test_everything_else_does(self, client: httpx.Client, stranger: httpx.Client) -> None:
        paths = client.get("/openapi.json").json()["paths"]
        assert len(paths) > 10
        for path, methods in paths.items():
            if path in OPEN:
                continue
            url = re.sub(r"{\w+}", "x", path)
            for method in methods:
                problem = stranger.request(method, url)
                assert problem.status_code == 401, (method, url)
        found = problem_of(stranger.get("/api/v1/jobs"), 401, "not_allowed")
        assert "token" in found["fix"]
        assert stranger.get("/openapi.json").status_code == 401
        assert stranger.get("/no/such/path").status_code == 401

    @pytest.mark.parametrize("value", ["Bearer wrong", "Bearer", "Basic eDp5", "Bearer \x7f"])
    def test_a_wrong_token(self, stranger: httpx.Client, value: str) -> None:
        answer = stranger.get("/api/v1/jobs", headers={"Authorization": value})
        problem_of(answer, 401, "not_allowed")

    def test_a_foreign_site_is_refused_though_it_has_the_token(self, client: httpx.Client) -> None:
        for header in (
            {"Host": "evil.example"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
        ):
            problem_of(client.get("/api/v1/jobs", headers=header), 403, "foreign_site")
        own = {"Origin": str(client.base_url).rstrip("/")}
        assert client.get("/api/v1/jobs", headers=own).status_code == 200

    def test_a_request_id_is_kept_or_made(self, client: httpx.Client) -> None:
        named = client.get("/api/v1/jobs", headers={"X-Request-ID": "mine-1"})
        assert named.headers["X-Request-ID"] == "mine-1"
        one, other = (client.get("/api/v1/jobs").headers["X-Request-ID"] for _ in range(2))
        assert one != other

    def test_a_path_and_a_method_that_are_not_there(self, client: httpx.Client) -> None:
        problem_of(client.get("/api/v1/nothing"), 404, "no_such_route")
        problem_of(client.delete("/api/v1/jobs"), 405, "wrong_method")


class TestAbout:
    def test_the_server(self, crucible: Deployment, client: httpx.Client) -> None:
        about = client.get("/api/v1/server").json()
        assert {"version", "deployment", "pid", "url", "agents_url", "running", "queued", "billing"} <= set(about)
        assert crucible.server is not None
        assert (about["pid"], about["home"]) == (crucible.server.pid, str(crucible.home))
        assert crucible.token not in str(about)

    def test_backends_machines_and_tiers(self, crucible: Deployment, client: httpx.Client) -> None:
        crucible.wait(crucible.submit(shell("true")))
        (local,) = client.get("/api/v1/backends").json()["items"]
        assert (local["name"], local["connected"]) == ("local", True)
        assert local["offers"][0]["rate_micros_per_hour"] == 0
        machines = client.get("/api/v1/machines").json()["items"]
        assert [(machine["backend"], machine["bills"]) for machine in machines] == [("local", False)]
        tiers = {tier["id"] for tier in client.get("/api/v1/tiers").json()["items"]}
        assert {"CPU_SMALL", "CPU_LARGE", "GPU_SMALL", "GPU_MEDIUM", "GPU_LARGE"} <= tiers

    def test_the_schema_of_a_job(self, client: httpx.Client) -> None:
        schema = client.get("/api/v1/schema/job").json()
        assert schema["type"] == "object"
        assert schema["properties"]
