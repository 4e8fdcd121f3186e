"""Every curl example of docs/api.md is run, in order, against a real server, and answers as the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support import packed, upload
from tests.harness import Deployment, python, until

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
SAMPLE = """
import os, pathlib, crucible
for step in (1, 2):
    print(f"step {step}/2 loss={1 / step}", flush=True)
crucible.checkpoint.save(b"weights", step=2, metric=0.5, name="step_00000002.pt")
pathlib.Path(os.environ["CRUCIBLE_OUTPUT_DIR"], "model.pt").write_bytes(b"model")
"""
WAITING = "import time; print('begun', flush=True); time.sleep(60)"
OTHERS = {
    "/api/v1/jobs -d": 201,
    "jobs/last/cancel": 200,
    "jobs/last/resume": 202,
    "jobs/last/rerun": 201,
    "jobs/last/checkpoint ": 202,
    "jobs/last/notes -d": 201,
    "/users -d": 201,
    "/projects -d": 201,
    "/tokens -d": 201,
    "jobs/last/share": 201,
    "secrets/HF_TOKEN": 201,
    "/hooks -d": 201,
    "models/logistic": 404,
    "/api/v1/training -d": 201,
    "training/last/cancel": 200,
    "training/$FAILED/resume": 202,
    "$URL/orchestrate": 201,
    "-T code.tar.gz": 201,
    "curl -I": 404,
    "machines/mch-k3v9xd/terminate": 404,
    "server/stop": 202,
}
"""What is answered where it is not 200. Those of 404 name things that only the page has."""


def examples() -> Iterator[tuple[str, str]]:
    """Each curl command of the page, with the assignments that stand before it."""
    names: dict[str, str] = {}
    held = ""
    for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for line in block.splitlines():
            held = f"{held}\n{line}" if held else line
            if held.count("'") % 2:
                continue
            if named := re.match(r"([A-Z_]+)=", held):
                names[named[1]] = held
            elif held.startswith("curl"):
                yield "\n".join(names.values()), held
            held = ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the commands are run: code to send, curl that tells the status, and a uuidgen."""
    (tmp_path / "code.tar.gz").write_bytes(packed(main="print(1)"))
    (tmp_path / ".curlrc").write_text('silent\nshow-error\nmax-time = 30\nwrite-out = "\\n%{http_code}"\n')
    shim = tmp_path / "bin" / "uuidgen"
    shim.parent.mkdir()
    shim.write_text("#!/bin/sh\nexec cat /proc/sys/kernel/random/uuid\n")
    shim.chmod(0o755)
    return tmp_path


def sample(crucible: Deployment, code: str = SAMPLE, name: str = "sample") -> str:
    return crucible.submit(python(code, name=name, resources={"cpus": 0.1}))


def quiet(crucible: Deployment) -> None:
    until(lambda: not crucible.get("/api/v1/jobs", active=True)["items"], 60, "all jobs to end")


def prepare(crucible: Deployment, command: str) -> str | None:
    """Makes `last` what the example is about; a job that is to be ended afterwards."""
    if "jobs/last/checkpoint " in command:
        job = sample(crucible, WAITING, "waiting")
        crucible.phase(job, "running")
        return job
    quiet(crucible)
    newest = crucible.get("/api/v1/jobs", limit=1)["items"][0]
    if "last" in command and "training" not in command and newest["name"] != "sample":
        crucible.wait(sample(crucible))
    return None


def run(crucible: Deployment, folder: Path, names: str, command: str, more: dict[str, str]) -> tuple[int, str]:
    command = command.replace("/var/backups", str(folder)).replace("https://hooks.example.org", "http://127.0.0.1:9")
    path = f"{folder / 'bin'}:{crucible.env['PATH']}"
    env = {**crucible.env, "PATH": path, "CURL_HOME": str(folder), "HOME": str(folder), **more}
    script = ["bash", "-euc", f"{names}\n{command}"]
    ran = subprocess.run(script, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, (command, ran.stderr)
    body, _, status = ran.stdout.rpartition("\n")
    return int(status), body


def expected(command: str) -> int:
    return next((status for words, status in OTHERS.items() if words in command), 200)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_every_example_answers_as_the_page_says(crucible: Deployment, folder: Path) -> None:
    upload(crucible, b"test")  # the bundle that the first example names
    failed = sample(crucible, f"{SAMPLE}\nraise SystemExit(3)")
    crucible.wait(failed)
    more = {"FIRST": sample(crucible), "FAILED": failed}
    crucible.wait(more["FIRST"])
    found = sorted(examples(), key=lambda example: "server/stop" in example[1])
    assert len(found) > 40
    for names, command in found:
        running = prepare(crucible, command)
        status, body = run(crucible, folder, names, command, more)
        assert status == expected(command), (command, status, body)
        if running is not None:
            crucible.cancel(running)
            crucible.wait(running)
    assert (folder / "model.pt").read_bytes() == b"model"
    assert (folder / "best.pt").read_bytes() == b"weights"
