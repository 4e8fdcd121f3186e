"""The server is killed at every border between a commit and an effect; the next start mends it all."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import httpx2 as httpx
import pytest
from tests.harness import TERMINAL, Deployment, View, alive, shell, until

from crucible.control.crashpoints import NAMES
from crucible.wire.bundle import Bundle, collect, make_bundle

T = TypeVar("T")

SECONDS = 60.0
LINES = 300
RESULT = bytes(range(256)) * 1000

PROGRAM = f"""\
import os, sys
import crucible

with open(sys.argv[1], "a") as runs:
    runs.write(f"{{os.getpid()}}\\n")
for number in range({LINES}):
    print("line", number, flush=True)
crucible.report(step=1, loss=0.5)
crucible.checkpoint.save(b"weights", step=1)
with open(os.path.join(os.environ["CRUCIBLE_OUTPUT_DIR"], "result.bin"), "wb") as file:
    file.write(bytes(range(256)) * 1000)
"""

OWN = {name for name in NAMES if name.startswith(("cancel.", "resume.", "terminate."))}


class Mortal:
    """A deployment whose server kills itself at one point; who finds it dead starts it again."""

    def __init__(self, crucible: Deployment, point: str) -> None:
        self.crucible = crucible
        self.deaths = 0
        crucible.start(CRUCIBLE_CRASHPOINT=point)

    def persist(self, call: Callable[[], T | None], what: str) -> T:
        """What `call` returns once it returns something true, though the server may die meanwhile."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            try:
                found = call()
            except (OSError, ValueError, httpx.HTTPError):
                found = None
            if found:
                return found
            self._revive()
            time.sleep(0.02)
        raise AssertionError(f"waited {SECONDS:g} s for {what}")

    def _revive(self) -> None:
        assert self.crucible.server is not None
        code = self.crucible.server.poll()
        if code is not None:
            assert code == -signal.SIGKILL
            self.deaths += 1
            self.crucible.start()

    def submit(self, spec: View) -> str:
        key = uuid.uuid4().hex
        return self.persist(lambda: self.crucible.submit(spec, key), "the acknowledgement")

    def end_of(self, job: str) -> View:
        return self.persist(lambda: self._terminal(job), f"{job} to end")

    def _terminal(self, job: str) -> View | None:
        view = self.crucible.job(job)
        return view if view["phase"] in TERMINAL else None


@pytest.fixture
def crucible(tmp_path: Path) -> Iterator[Deployment]:
    """Not started: each test arms its own point."""
    deployment = Deployment(tmp_path)
    yield deployment
    deployment.close()


@pytest.mark.parametrize("point", sorted(NAMES - OWN))
def test_a_job_is_run_once_and_whole(crucible: Deployment, tmp_path: Path, point: str) -> None:
    mortal = Mortal(crucible, point)
    bundle = _bundle(tmp_path)
    mortal.persist(lambda: _upload(crucible, bundle), "the bundle")
    runs = tmp_path / "runs"
    job = mortal.submit({"command": ["{python}", "job.py", str(runs)], "bundle": bundle.sha256})
    view = mortal.end_of(job)
    assert mortal.deaths == 1, f"{point} was not reached"
    assert (view["status"], view["exit_code"], view["attempt"]) == ("completed", 0, 1)
    assert len(runs.read_text().split()) == 1
    _is_whole(crucible, job)


@pytest.mark.parametrize("point", sorted(name for name in NAMES if name.startswith("cancel.")))
def test_a_wish_to_cancel_is_kept(crucible: Deployment, tmp_path: Path, point: str) -> None:
    mortal = Mortal(crucible, point)
    runs = tmp_path / "runs"
    job = mortal.submit(shell(f"echo $$ >> {runs}; exec sleep 1000"))
    until(lambda: runs.exists() and runs.read_text().strip(), SECONDS, "the process")
    mortal.persist(lambda: crucible.cancel(job), "the cancellation")
    view = mortal.end_of(job)
    assert mortal.deaths == 1, f"{point} was not reached"
    assert view["status"] == "cancelled"
    (pid,) = map(int, runs.read_text().split())
    assert not alive(pid)
    _is_the_only_one(crucible, job)


@pytest.mark.parametrize("point", sorted(name for name in NAMES if name.startswith("resume.")))
def test_a_wish_to_resume_is_kept(crucible: Deployment, tmp_path: Path, point: str) -> None:
    mortal = Mortal(crucible, point)
    runs = tmp_path / "runs"
    job = mortal.submit(shell(f"echo $$ >> {runs}; test $(wc -l < {runs}) = 2"))
    assert mortal.end_of(job)["status"] == "failed"
    mortal.persist(lambda: _resume(crucible, job), "the resumption")
    view = mortal.end_of(job)
    assert mortal.deaths == 1, f"{point} was not reached"
    assert (view["status"], view["generation"], view["attempt"]) == ("completed", 2, 2)
    assert len(runs.read_text().split()) == 2
    _is_the_only_one(crucible, job)


@pytest.mark.parametrize("point", sorted(name for name in NAMES if name.startswith("terminate.")))
def test_a_released_machine_goes(crucible: Deployment, point: str) -> None:
    """A server that is asked to stop gives back the machines on which nothing runs."""
    mortal = Mortal(crucible, point)
    mortal.end_of(mortal.submit(shell("true")))
    (machine,) = crucible.get("/api/v1/machines")["items"]
    assert crucible.server is not None
    crucible.server.terminate()
    crucible.server.wait(SECONDS)
    assert crucible.server.returncode == -signal.SIGKILL, f"{point} was not reached"
    crucible.start()
    until(lambda: _states(crucible)[machine["id"]] == "gone", SECONDS, "the machine to be gone")
    assert crucible.hosts() == []
    assert crucible.left() == []
    assert crucible.wait(crucible.submit(shell("true")))["status"] == "completed"


def _resume(crucible: Deployment, job: str) -> bool:
    """Asked for, now or by a request whose answer was lost: then it goes on already, or has completed."""
    with crucible.client() as client:
        return client.post(f"/api/v1/jobs/{job}/resume", json={}).status_code in (200, 202, 409)


def _bundle(folder: Path) -> Bundle:
    code = folder / "code"
    code.mkdir()
    (code / "job.py").write_text(PROGRAM)
    return make_bundle(collect(code), folder)


def _upload(crucible: Deployment, bundle: Bundle) -> bool:
    with crucible.client() as client:
        answer = client.put(f"/api/v1/bundles/{bundle.sha256}", content=bundle.path.read_bytes())
        assert answer.status_code in (200, 201), answer.text
    return True


def _is_whole(crucible: Deployment, job: str) -> None:
    expected = "".join(f"line {number}\n" for number in range(LINES))
    assert crucible.log(job).decode() == expected
    (artifact,) = crucible.get(f"/api/v1/jobs/{job}/artifacts")["items"]
    assert (artifact["path"], artifact["size"]) == ("result.bin", len(RESULT))
    with crucible.client() as client:
        assert client.get(f"/api/v1/jobs/{job}/artifacts/result.bin").content == RESULT
    series = crucible.get(f"/api/v1/jobs/{job}/metrics", series="loss")["series"]["loss"]
    assert [point[:2] for point in series["points"]] == [[1, 0.5]]
    _is_the_only_one(crucible, job)


def _is_the_only_one(crucible: Deployment, job: str) -> None:
    assert [view["id"] for view in crucible.get("/api/v1/jobs")["items"]] == [job]
    numbers = [event["n"] for event in crucible.events(job)]
    assert numbers == list(range(1, len(numbers) + 1))
    crucible.nothing_left()


def _states(crucible: Deployment) -> dict[str, str]:
    return {item["id"]: item["state"] for item in crucible.get("/api/v1/machines", all="true")["items"]}
