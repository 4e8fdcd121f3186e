"""The embedded server: found, or started detached by the first command that needs it.

The running server holds `server.lock` and describes itself in `server.json`. `start.lock` lets one command at a time
start it; the second then finds the first one's server. A server is ready when it answers with its nonce.
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

from crucible.client.api import Api
from crucible.client.server.discovery import Discovery, answers, endpoint_of, find_server, read_discovery, try_lock
from crucible.client.transport.clock import MonotonicClock
from crucible.client.transport.http import Endpoint
from crucible.client.transport.problems import error_from
from crucible.core.errors import CrucibleError, DiskFull, TimedOut, Trouble, Unreachable
from crucible.wire.process import is_locked

COMMAND = (sys.executable, "-m", "crucible.app", "serve", "--embedded")
POLL_SECONDS = 0.02
STOP_SECONDS = 15.0
STARTS = 3
"""How often to start a server that is killed while it starts."""

_TAIL_LINES = 12
_LONGEST_LINE = 300
_NOT_INHERITED = ("CRUCIBLE_SERVER", "CRUCIBLE_TOKEN")


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
        """Return the server if it is running, whatever its version; starts nothing."""
        running = find_server(self.home)
        return endpoint_of(self.home, running) if running else None

    def unresponsive(self) -> CrucibleError | None:
        """Return the error for a server whose process lives and does not answer; None if there is none."""
        found = read_discovery(self.home)
        if found is None or not found.alive or answers(found):
            return None
        return Unreachable(
            f"The server of {self.home} (process {found.pid}) does not answer.",
            why="Its process is suspended, or hangs.",
            fix=f"`kill -CONT {found.pid}` resumes a suspended one; `crucible down` ends it, and jobs continue.",
            pid=found.pid,
        )

    def ensure(self) -> Endpoint:
        """Return our server in our version, started if needed. Raises the error that kept it from starting."""
        running = find_server(self.home)
        if running is None or running.version != self.version:
            self._refuse_inside_a_job()
            running = self._start_once()
        return endpoint_of(self.home, running)

    def stop(self) -> bool:
        """Stop the server and wait until its process is gone; False if none was running. Jobs go on."""
        running = read_discovery(self.home)
        if running is None or not running.alive:
            return False
        self._ask_to_stop(running)
        running.process.send(signal.SIGCONT)  # a suspended process handles no other signal than SIGKILL
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._wait_for_end(running):
                return True
            running.process.send(number)
        if not self._wait_for_end(running):
            raise TimedOut(
                f"The server (process {running.pid}) does not stop.", fix=f"Check {self.log}, then kill the process."
            )
        return True

    # Starting

    def _start_once(self) -> Discovery:
        """Start the server, or return the one that another command starts meanwhile."""
        _make_home(self.home)
        deadline = self.clock.monotonic() + self.start_seconds
        while True:
            with try_lock(self.home / "start.lock") as is_held:
                if is_held:
                    return self._start(self.clock.monotonic() + self.start_seconds)
            running = find_server(self.home)
            if running is not None and running.version == self.version:
                return running
            if self.clock.monotonic() > deadline + self.start_seconds:
                raise self._not_started("Another command has been starting it for too long.")
            self.clock.sleep(POLL_SECONDS)

    def _start(self, deadline: float) -> Discovery:
        running = self._wait_for_settled(deadline)
        for _ in range(STARTS):
            if running is not None:
                return running
            running = self._spawn(deadline)
        raise self._not_started("It was killed each time while it started.")

    def _wait_for_settled(self, deadline: float) -> Discovery | None:
        """Return the running server of our version, or None once no server runs; stops one of another version."""
        while True:
            running = find_server(self.home)
            if running is not None and running.version == self.version:
                return running
            if running is not None:
                self.stop()
            elif not self._is_held():
                return None
            elif self.clock.monotonic() > deadline:
                raise self.unresponsive() or self._not_started(
                    "A server holds the state folder but does not get ready."
                )
            self.clock.sleep(POLL_SECONDS)

    def _spawn(self, deadline: float) -> Discovery | None:
        """Start one process and wait until it is ready; None if it was killed before."""
        nonce = secrets.token_hex(16)
        begins = self.log.stat().st_size if self.log.exists() else 0
        child = self._spawn_process(nonce)
        while self.clock.monotonic() < deadline:
            running = read_discovery(self.home)
            if running is not None and running.nonce == nonce and answers(running):
                return running
            if child.poll() is not None:
                return self._after_exit(child.returncode, begins, deadline)
            self.clock.sleep(POLL_SECONDS)
        child.terminate()
        raise self._not_started(f"It was not ready within {self.start_seconds:g} seconds.")

    def _spawn_process(self, nonce: str) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own that inherits no files and writes to the log.

        The state folder is passed as a flag: $CRUCIBLE_HOME would also move the user's settings, which it reads.
        """
        passed = {name: value for name, value in self.environ.items() if name not in _NOT_INHERITED}
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
        """Return the server that won the race, or None if our process was killed. Raises the error that ended it."""
        if self._is_held():
            return self._wait_for_settled(deadline)
        error = last_error(self.log, begins)
        if error is not None:
            raise error
        if code < 0:
            return None
        raise Trouble(
            f"The server ended with code {code} before it was ready.",
            why=self._last_lines(begins),
            fix=f"Its log is {self.log}; `crucible doctor` checks this computer.",
        )

    def _is_held(self) -> bool:
        """Return whether a server has locked the folder, or the file in it, which may have been removed since."""
        return is_locked(self.home / "server.lock") or is_locked(self.home)

    # Stopping

    def _ask_to_stop(self, running: Discovery) -> None:
        api = Api(endpoint_of(self.home, running), seconds=5.0)
        try:
            api.stop_server()
        except CrucibleError:
            # The server does not answer, or rejects our token: a signal needs neither.
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

    def _not_started(self, why: str) -> CrucibleError:
        lines = self._last_lines(0)
        return Unreachable(
            "The embedded server did not start.",
            why=f"{why} The end of its log:\n{lines}" if lines else why,
            fix=f"Its log is {self.log}; `crucible doctor` checks this computer.",
            log=str(self.log),
        )

    def _last_lines(self, begins: int) -> str:
        lines = _log_lines(self.log, begins)[-_TAIL_LINES:]
        return "\n".join(f"    {_shortened(line)}" for line in lines)


def last_error(log: Path, begins: int = 0) -> CrucibleError | None:
    """Return the error that a server logged as its last line, reading the log from byte `begins` on."""
    lines = _log_lines(log, begins)
    try:
        problem = json.loads(lines[-1])["error"] if lines else None
    except (ValueError, KeyError, TypeError):
        return None
    return error_from(problem) if isinstance(problem, dict) else None


def _shortened(line: str) -> str:
    """Return the line, shortened: one with a traceback would hide the others."""
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


def _make_home(home: Path) -> None:
    """Create the state folder and the lock file in it, so that a folder that cannot be used fails here."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(home / "start.lock", os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(
                f"The disk is full: no room for the state folder {home}.",
                fix="Free some space, or set CRUCIBLE_HOME to a folder on another local disk.",
            ) from error
        raise Trouble(
            f"The state folder {home} cannot be used.",
            why=error.strerror or str(error),
            fix="Set CRUCIBLE_HOME to a folder on a local disk that you may write to.",
        ) from error
