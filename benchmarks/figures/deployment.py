"""Start a real server on its own state folder, and run commands against it."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from tests.harness import Deployment, until

SECONDS = 60.0
SLEEPS: Mapping[str, Any] = {"command": ["sleep", "3600"], "name": "has the whole computer"}


@dataclass(frozen=True)
class Running:
    """A server that is ready: how long its start took, and the CPU time until then."""

    home: Path
    pid: int
    url: str
    token: str
    ready_seconds: float
    ready_cpu: float

    def client(self) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=SECONDS, trust_env=False)

    @property
    def memory_mb(self) -> float:
        """Return its resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Running]:
    """Yield a ready server on a state folder below `folder`; everything it started ends with it."""
    with contextlib.closing(Deployment(folder)) as deployment:
        took = deployment.start()
        assert deployment.server is not None
        pid = deployment.server.pid
        yield Running(deployment.home, pid, deployment.discovery["url"], deployment.token, took, cpu_of(pid))


@contextlib.contextmanager
def busy(server: Running) -> Iterator[httpx2.Client]:
    """Let one job use the whole computer, so that further submissions are only stored."""
    with server.client() as client:
        job = client.post("/api/v1/jobs", json=SLEEPS).raise_for_status().json()["id"]
        until(lambda: client.get(f"/api/v1/jobs/{job}").json()["phase"] == "running", SECONDS, "the job to run")
        yield client


def cpu_of(pid: int) -> float:
    """Return a process's user and system CPU time in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def command_cpu(home: Path, *words: str) -> float:
    """Return the CPU seconds of `crucible` with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "crucible", *words],
        env={**os.environ, "CRUCIBLE_HOME": str(home)},
        cwd=home,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=SECONDS,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
