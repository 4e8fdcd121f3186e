"""The embedded server: found, or started detached by the first command that needs it.

`server.lock` decides who runs, `server.json` says how to find it, and `start.lock` lets one starter at a time
work: of two, the second finds the first one's server. A server is ready when it answers with its nonce.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crucible.client.api import Api, routes
from crucible.client.server.discovery import Discovery, endpoint_of, find_server, probe, read_discovery, try_lock
from crucible.client.transport.clock import MonotonicClock
from crucible.client.transport.http import Endpoint
from crucible.client.transport.problems import error_from
from crucible.core.errors import CrucibleError, DiskFull, TimedOut, Trouble, Unreachable
from crucible.wire.process import is_locked

COMMAND = (sys.executable, "-m", "crucible.app", "serve", "--embedded")
POLL_SECONDS = 0.02
STOP_SECONDS = 15.0
STARTS = 3
"""A server that is killed while it starts is started again this often."""

_TAIL_LINES = 12
_LONGEST_LINE = 300
_OURS = ("CRUCIBLE_SERVER", "CRUCIBLE_TOKEN")


@dataclass(frozen=True)
class Embedded:
    """The embedded server of one state folder. `environ` is the caller's; the server inherits it."""

    home: Path
    version: str
    environ: Mapping[str, str]
    command: Sequence[str] = COMMAND
    start_seconds: float = 15.0
    clock: MonotonicClock = field(default=time)

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    def find_running(self) -> Endpoint | None:
        """The server if it is up, of whatever version; nothing is started."""
        running = find_server(self.home)
        return endpoint_of(self.home, running) if running else None

    def ensure(self) -> Endpoint:
        """Our server, started if need be. Raises what kept it from starting, in its own words."""
        running = find_server(self.home)
        if running is None or running.version != self.version:
            self._refuse_inside_a_job()
            running = self._start_once()
        return endpoint_of(self.home, running)

    def stop(self) -> bool:
        """Stop the server and wait until its process is gone; False if none was up. Jobs live on."""
        running = read_discovery(self.home)
        if running is None or not running.alive:
            return False
        self._ask_to_stop(running)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._wait_for_end(running):
                return True
            running.process.send(number)
        if not self._wait_for_end(running):
            raise TimedOut(f"The server (process {running.pid}) does not end.", fix=f"Look at {self.log}, then end it.")
        return True

    # Starting

    def _start_once(self) -> Discovery:
        """Start the server, or use the one that another starter brings up meanwhile."""
        _make_home(self.home)
        deadline = self.clock.monotonic() + self.start_seconds
        while True:
            with try_lock(self.home / "start.lock") as ours:
                if ours:
                    return self._start(self.clock.monotonic() + self.start_seconds)
            running = find_server(self.home)
            if running is not None and running.version == self.version:
                return running
            if self.clock.monotonic() > deadline + self.start_seconds:
                raise self._late("Another command has been starting it for too long.")
            self.clock.sleep(POLL_SECONDS)

    def _start(self, deadline: float) -> Discovery:
        running = self._settled(deadline)
        for _ in range(STARTS):
            if running is not None:
                return running
            running = self._spawn(deadline)
        raise self._late("It was killed each time while it started.")

    def _settled(self, deadline: float) -> Discovery | None:
        """The server of our version if one is up; None once it is certain that nobody runs."""
        while True:
            running = find_server(self.home)
            if running is not None and running.version == self.version:
                return running
            if running is not None:
                self.stop()
            elif not is_locked(self.home / "server.lock"):
                return None
            elif self.clock.monotonic() > deadline:
                raise self._late("A server holds the state folder but does not get ready.")
            self.clock.sleep(POLL_SECONDS)

    def _spawn(self, deadline: float) -> Discovery | None:
        """Start one process and wait for it; None if it was killed before it was ready."""
        nonce = secrets.token_hex(16)
        begins = self.log.stat().st_size if self.log.exists() else 0
        child = self._detached(nonce)
        while self.clock.monotonic() < deadline:
            running = read_discovery(self.home)
            if running is not None and running.nonce == nonce and _is_ready(running):
                return running
            if child.poll() is not None:
                return self._after_exit(child.returncode, begins, deadline)
            self.clock.sleep(POLL_SECONDS)
        child.terminate()
        raise self._late(f"It was not ready within {self.start_seconds:g} seconds.")

    def _detached(self, nonce: str) -> subprocess.Popen[bytes]:
        """A process of its own session that holds none of our files and writes to the log.

        Its state folder is said by a flag: the variable would also move the user's own settings, which it reads.
        """
        passed = {name: value for name, value in self.environ.items() if name not in _OURS}
        with open(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            return subprocess.Popen(
                [*self.command, "--home", str(self.home), "--nonce", nonce],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                env=passed,
                start_new_session=True,
                close_fds=True,
            )

    def _after_exit(self, code: int, begins: int, deadline: float) -> Discovery | None:
        """Our process is gone: use the winner's server, say what it said, or (None) it was killed."""
        if is_locked(self.home / "server.lock"):
            return self._settled(deadline)
        told = last_error(self.log, begins)
        if told is not None:
            raise told
        if code < 0:
            return None
        raise Trouble(
            f"The server ended with code {code} before it was ready.",
            why=self._last_lines(begins),
            fix=f"Its log is {self.log}; `crucible doctor` checks the surroundings.",
        )

    # Stopping

    def _ask_to_stop(self, running: Discovery) -> None:
        api = Api(endpoint_of(self.home, running), seconds=5.0)
        try:
            api.stop_server()
        except CrucibleError:
            # It does not answer, or does not accept our token: a signal works without either.
            running.process.send(signal.SIGTERM)
        finally:
            api.close()

    def _wait_for_end(self, running: Discovery) -> bool:
        deadline = self.clock.monotonic() + STOP_SECONDS
        while self.clock.monotonic() < deadline:
            if not running.alive:
                return True
            self.clock.sleep(POLL_SECONDS)
        return False

    # Telling

    def _refuse_inside_a_job(self) -> None:
        if "CRUCIBLE_JOB_ID" in self.environ:
            raise Unreachable(
                "Inside a job there is no server to talk to.",
                why="None is named, and a job never starts one.",
                fix="Name one with --server or CRUCIBLE_SERVER, or run this command outside the job.",
            )

    def _late(self, why: str) -> CrucibleError:
        lines = self._last_lines(0)
        return Unreachable(
            "The embedded server did not start.",
            why=f"{why} The end of its log:\n{lines}" if lines else why,
            fix=f"Its log is {self.log}; `crucible doctor` checks the surroundings.",
            log=str(self.log),
        )

    def _last_lines(self, begins: int) -> str:
        lines = _log_lines(self.log, begins)[-_TAIL_LINES:]
        return "\n".join(f"    {_shortened(line)}" for line in lines)


def last_error(log: Path, begins: int = 0) -> CrucibleError | None:
    """The error that a server wrote as its last line when it gave up, looking from byte `begins` on."""
    lines = _log_lines(log, begins)
    try:
        said = json.loads(lines[-1])["error"] if lines else None
    except (ValueError, KeyError, TypeError):
        return None
    return error_from(said) if isinstance(said, dict) else None


def _shortened(line: str) -> str:
    """A line with a traceback in it would hide the others."""
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"


def _log_lines(log: Path, begins: int) -> list[str]:
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(begins, size - 64 * 1024))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]


def _is_ready(running: Discovery) -> bool:
    answer = probe(running.url, routes.READY)
    return answer is not None and answer.ready and answer.nonce == running.nonce


def _make_home(home: Path) -> None:
    """The state folder, with the lock file in it, so that what is wrong with the place shows here."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(home / "start.lock", os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(
                f"There is no room left for the state folder {home}.",
                fix="Make room, or set CRUCIBLE_HOME to a folder on another local disk.",
            ) from error
        raise Trouble(
            f"The state folder {home} cannot be used.",
            why=error.strerror or str(error),
            fix="Set CRUCIBLE_HOME to a folder on a local disk that you may write to.",
        ) from error
