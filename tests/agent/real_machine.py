"""A machine for tests: a real host process in its own folder, and ways to break it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.agent.agents_server import NATIVE_ID, AgentsServer, Attempt
from tests.agent.waiting import poll
from tests.fork_server import Forked, ForkServer, for_interpreters

import crucible
from crucible.agent.process.limits import LimitsProbe, choose_limiter
from crucible.core.job.spec import EnvironmentSpec, JobSpec, Retries
from crucible.wire.process import Process

SOURCES = str(Path(crucible.__file__).parent.parent)
# The kernel's control groups are named by the attempt and common to all test processes.
A1, A2 = (f"attempt{number}-{uuid.uuid4().hex[:12]}" for number in (1, 2))
PYTHON = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or sys.executable


ONCE = Retries(interruption=0, infrastructure=0, user=0)


def script(text: str, **fields: Any) -> JobSpec:
    """Return a job that runs a Python script given as text, once."""
    plain = {"command": ("{python}", "-c", text), "environment": EnvironmentSpec(interpreter=PYTHON), "retries": ONCE}
    return JobSpec(**{**plain, **fields})


class Machine:
    """Starts hosts as the local backend does. `close` ends everything that is left of them."""

    fork_server: ForkServer | None = None
    """The server that forks hosts, if they need not be new interpreters."""

    def __init__(self, folder: Path, control: AgentsServer, **bootstrap: object) -> None:
        self.control = control
        self.work = folder / "machine"
        self.envs = folder / "envs"
        self._processes: list[subprocess.Popen[bytes] | Forked] = []
        self._bootstrap = folder / "bootstrap.json"
        doc = {
            "machine": control.machine,
            "nonce": control.nonce,
            "agents_url": None,
            "agents_url_file": str(control.url_file),
            "work": str(self.work),
            "envs": str(self.envs),
            "uv": None,
            "idle_exit_seconds": 60,
            "native_id": NATIVE_ID,
            "shared": True,
        }
        self._bootstrap.write_text(json.dumps({**doc, **bootstrap}))

    def start_host(self, **env: str) -> subprocess.Popen[bytes] | Forked:
        arguments = ("host", "--bootstrap", str(self._bootstrap))
        variables = {**os.environ, **env}
        host: subprocess.Popen[bytes] | Forked
        if self.fork_server is not None and not for_interpreters(variables):
            with open(os.devnull, "rb") as nothing, open(1, "wb", closefd=False) as out:
                host = self.fork_server.fork(arguments, variables, (nothing, out, out))
        else:
            host = subprocess.Popen(
                [os.environ.get("AGENT_PYTHON", sys.executable), "-m", "crucible.agent", *arguments],
                env={**os.environ, "PYTHONPATH": SOURCES, **env},
                start_new_session=True,
                stdin=subprocess.DEVNULL,
            )
        self._processes.append(host)
        return host

    def run(self, spec: JobSpec, attempt: str = A1, **options: bool) -> Attempt:
        return self.control.run(spec, attempt, **options)

    def folder(self, attempt: str = A1) -> Path:
        return self.work / "attempts" / f"{attempt}-0"

    def runner(self, attempt: str = A1) -> Process:
        path = self.folder(attempt) / "runner.json"
        poll(path.exists)
        doc = json.loads(path.read_text())
        return Process(doc["pid"], doc["start_time"])

    def log(self) -> str:
        return (self.work / "host.log").read_text()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        attempts = self.work / "attempts"
        for name in ("runner.json", "process.json"):
            for path in attempts.glob(f"*/{name}"):
                doc = json.loads(path.read_text())
                process = Process(doc["pid"], doc["start_time"])
                if process.alive:
                    os.kill(process.pid, signal.SIGKILL)
                    poll(lambda process=process: not process.alive)
        for attempt in (A1, A2):
            left = choose_limiter(LimitsProbe(folder=self.work / "limits")).find_left(attempt)
            if left is not None:
                left.kill_all()
                left.remove()
