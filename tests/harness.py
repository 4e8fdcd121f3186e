"""A real deployment for tests: its own state folder, the real server and agent, driven over HTTP.

    with Deployment(tmp_path) as crucible:
        job = crucible.submit(shell("echo hello"))
        assert crucible.wait(job)["status"] == "completed"

Nothing here sleeps for a fixed time: `until` looks again and again until a deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx2 as httpx
import psutil
from tests.fork_server import Forked, ForkServer, for_interpreters

T = TypeVar("T")
View = dict[str, Any]
TERMINAL = {"completed", "failed", "cancelled"}
SOON, LATER = 0.02, 0.25
"""Seconds between polls: at first, and later. Polling takes CPU time from what the test waits for."""


def until(look: Callable[[], T | None], seconds: float = 30.0, what: str = "it") -> T:
    """Poll `look` until it returns something true, and return that; fail the test after `seconds`."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        found = look()
        if found:
            return found
        time.sleep(min(max((time.monotonic() - began) / 10, SOON), LATER))
    raise AssertionError(f"waited {seconds:g} s for {what}")


def shell(command: str, **more: object) -> View:
    """Return the spec of a job that runs a shell command."""
    return {"command": ["/bin/sh", "-c", command], **more}


def python(code: str, **more: object) -> View:
    """Return the spec of a job that runs Python code."""
    return {"command": ["{python}", "-u", "-c", code], **more}


class Deployment:
    """A server on its own state folder. It may be killed and restarted; its jobs continue."""

    fork_server: ForkServer | None = None
    """Fork server for servers; None if they must be new interpreters."""
    commands: ForkServer | None = None
    """Fork server for commands; None if they must be new interpreters."""

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.home = folder / "home"
        self.env = {**os.environ, "CRUCIBLE_HOME": str(self.home), **(env or {})}
        self.server: subprocess.Popen[bytes] | Forked | None = None
        self._line: tuple[View, httpx.Client] | None = None

    def __enter__(self) -> Deployment:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, *prefix: str, seconds: float = 60.0, **env: str) -> float:
        """Start the server and wait until it is ready; return the seconds this took. `prefix` runs it under a tool."""
        nonce = os.urandom(8).hex()
        self.home.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        arguments, given = ("serve", "--embedded", "--nonce", nonce), {**self.env, **env}
        with open(self.home / "server.log", "ab") as log, open(os.devnull, "rb") as nothing:
            if self.fork_server is not None and not prefix and not for_interpreters(given):
                self.server = self.fork_server.fork(arguments, given, (nothing, log, log))
            else:
                command = [*prefix, sys.executable, "-m", "crucible.app", *arguments]
                self.server = subprocess.Popen(command, env=given, stdout=log, stderr=log)
        until(lambda: self._ready(nonce), seconds, "the server")
        return time.monotonic() - began

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def stop(self) -> None:
        """Stop the server with SIGTERM."""
        assert self.server is not None
        self.server.terminate()
        self.server.wait(10)

    def restart(self) -> float:
        self.kill()
        return self.start()

    def close(self) -> None:
        """End all processes of this deployment: server, hosts, runners, users' processes."""
        self._hang_up()
        if self.server is not None and self.server.poll() is None:
            self.server.kill()
            self.server.wait()
        until(self._end_all, 20.0, "every process to end")

    def processes(self) -> list[psutil.Process]:
        """Return all processes of this deployment except the server."""
        mine = str(self.home)
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                about = " ".join(process.cmdline()) + " " + process.environ().get("CRUCIBLE_OUTPUT_DIR", "")
                if mine in about and (self.server is None or process.pid != self.server.pid):
                    found.append(process)
        return found

    def servers(self) -> list[psutil.Process]:
        """Return every server on this state folder, including one that a command started or that runs under a tool."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get("CRUCIBLE_HOME") == str(self.home)
                if ours and process.cmdline()[1:3] == ["-m", "crucible.app"]:
                    found.append(process)
        if isinstance(self.server, Forked) and self.server.poll() is None:  # it has another's command line
            found.append(psutil.Process(self.server.pid))
        return found

    def hosts(self) -> list[int]:
        """Return the pids of the running hosts, from their files."""
        pids = [_pid(path) for path in self.home.glob("machines/*/host.json")]
        return [pid for pid in pids if pid and alive(pid)]

    def left(self) -> list[psutil.Process]:
        """Return runners and the processes of jobs: everything except server and host."""
        hosts = self.hosts()
        return [process for process in self.processes() if process.pid not in hosts and alive(process.pid)]

    def nothing_left(self, seconds: float = 20.0) -> None:
        """Wait until only the server and at most one host run."""
        until(lambda: not self.left(), seconds, "runners and processes of jobs to end")
        assert len(self.hosts()) <= 1

    @property
    def discovery(self) -> View:
        return dict(json.loads((self.home / "server.json").read_text()))

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def client(self, timeout: float = 30.0) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        # Without certificates: reading them takes longer than most requests here.
        return httpx.Client(
            base_url=self.discovery["url"], headers=headers, timeout=timeout, verify=False, trust_env=False
        )

    def get(self, path: str, **params: object) -> Any:
        answer = self._kept().get(path, params=params)  # type: ignore[arg-type]
        answer.raise_for_status()
        return answer.json()

    def _kept(self) -> httpx.Client:
        """Return one client per server, because creating and connecting one takes longer than a request."""
        found = {**self.discovery, "token": self.token}
        if self._line is None or self._line[0] != found:
            self._hang_up()
            self._line = found, self.client()
        return self._line[1]

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line[1].close()
            self._line = None

    def submit(self, spec: View, key: str | None = None) -> str:
        with self.client() as client:
            headers = {"Idempotency-Key": key} if key else {}
            answer = client.post("/api/v1/jobs", json=spec, headers=headers)
            assert answer.status_code in (200, 201), answer.text
            return str(answer.json()["id"])

    def job(self, job: str) -> View:
        return dict(self.get(f"/api/v1/jobs/{job}"))

    def cancel(self, job: str) -> View:
        with self.client() as client:
            return dict(client.post(f"/api/v1/jobs/{job}/cancel").json())

    def wait(self, job: str, seconds: float = 60.0) -> View:
        """Wait until the job has ended, and return it."""
        return until(lambda: self._over(job), seconds, f"{job} to end")

    def phase(self, job: str, *phases: str, seconds: float = 30.0) -> View:
        """Wait until the job is in one of these phases, and return it."""
        return until(lambda: self._in(job, phases), seconds, f"{job} to be {' or '.join(phases)}")

    def events(self, job: str) -> list[View]:
        return list(self.get(f"/api/v1/jobs/{job}/events", limit=1000)["items"])

    def log(self, job: str, attempt: int | None = None) -> bytes:
        """Return the whole output of an attempt (default: the last)."""
        with self.client() as client:
            return b"".join(_pages(client, job, attempt))

    def cli(self, *arguments: str, seconds: float = 60.0, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run the real command on this deployment."""
        return self.command(arguments, self.env, seconds, **more)

    def command(
        self, arguments: Sequence[str], env: Mapping[str, str], seconds: float, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run the command to its end; `more` is passed to `subprocess.run`."""
        if self.commands is not None and more.keys() <= {"cwd", "input"} and not for_interpreters(env):
            return self.commands.run(arguments, env, seconds, **more)
        command = [sys.executable, "-m", "crucible", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=seconds, check=False, **more)

    def _ready(self, nonce: str) -> bool:
        assert self.server is not None
        if self.server.poll() is not None:
            raise AssertionError(f"the server ended: {(self.home / 'server.log').read_text()[-2000:]}")
        try:
            found = self.discovery
            return found["nonce"] == nonce and self._says_ready(found["url"])
        except (OSError, ValueError, httpx.HTTPError):
            return False

    def _says_ready(self, url: str) -> bool:
        return httpx.get(f"{url}/readyz", timeout=2, verify=False, trust_env=False).status_code == 200

    def _end_all(self) -> bool:
        found = [*self.servers(), *self.processes()]
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return not any(alive(process.pid) for process in found)

    def _over(self, job: str) -> View | None:
        return self._in(job, TERMINAL)

    def _in(self, job: str, phases: tuple[str, ...] | set[str]) -> View | None:
        try:
            view = self.job(job)
        except (OSError, httpx.HTTPError):
            return None
        return view if view["phase"] in phases else None


def _pages(client: httpx.Client, job: str, attempt: int | None) -> Iterator[bytes]:
    offset = 0
    while True:
        params: dict[str, int] = {"offset": offset, "limit": 1024 * 1024}
        if attempt is not None:
            params["attempt"] = attempt
        answer = client.get(f"/api/v1/jobs/{job}/logs", params=params)
        answer.raise_for_status()
        following = int(answer.headers["X-Crucible-Next"])
        if following == offset:
            return
        yield answer.content
        offset = following


def _pid(path: Path) -> int | None:
    try:
        return int(json.loads(path.read_bytes())["pid"])
    except (OSError, ValueError, KeyError):
        return None


def alive(pid: int) -> bool:
    """Return whether this process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def interrupt(process: subprocess.Popen[Any]) -> None:
    """Send Ctrl-C to the process."""
    process.send_signal(signal.SIGINT)
