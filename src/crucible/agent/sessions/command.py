"""A command of a session: started like the job's program, with pipes or a terminal, and ended completely.

The runner has threads, so it cannot fork the command. It starts a new Python that waits for its order (see `launcher`),
puts it under the job's limits meanwhile, and lets it execute the command.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from crucible.agent.process.launcher import check_executed
from crucible.agent.process.process_groups import find_by_variables, kill_until_gone, signal_group
from crucible.agent.sessions.endpoint import JobContext
from crucible.wire.http.sessions import Command, FrameKind, Over, Size

log = logging.getLogger(__name__)

SESSION = "CRUCIBLE_SESSION_ID"
"""Environment variable by which every process of a session is found."""
HANG_UP_SECONDS = 5.0
"""Seconds between SIGHUP and SIGKILL, for a command whose user has disconnected."""
DRAIN_SECONDS = 1.0
"""Seconds to read output after the command has ended, because its background processes may hold the pipe open."""
KILL_SECONDS = 5.0
JOB_END_SECONDS = 1.0
"""The end of a job kills its program and its sessions, one shortly after the other."""
_EOF = b"\x04"
_DEFAULT_SHELL = "/bin/sh"
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from crucible.agent.process.launcher import exec_session_command; sys.exit(exec_session_command(sys.argv[2:]))"
)
_MARKS = (SESSION, "CRUCIBLE_ATTEMPT_ID", "CRUCIBLE_RANK")
"""The variables of the starting process: by them it is found and killed with the job from its first moment on."""
_ROOT = str(Path(__file__).parents[3])


class CommandEndpoint:
    """A running command. The constructor raises CannotExecute with the exit code of a shell."""

    def __init__(self, id: str, wanted: Command, job: JobContext) -> None:
        self.sources: dict[int, FrameKind] = {}
        self.sink: Optional[int] = None
        self.waker: Optional[int] = None
        self._mark = {SESSION: id}
        self._job = job
        self._terminal: Optional[int] = None
        self._ended = threading.Event()
        self._ended_at = 0.0
        self._left = False
        env = {**job.env, **self._mark, **({"TERM": wanted.term} if wanted.terminal and wanted.term else {})}
        words = wanted.words or (_shell(env),)
        self.waker, self._wakeup = os.pipe()
        try:
            self._process = self._start(words, env, wanted.terminal)
        except BaseException:
            self._close()
            os.close(self._wakeup)
            raise
        threading.Thread(target=self._wait, name="session-wait", daemon=True).start()

    # Starting

    def _start(self, words: tuple[str, ...], env: Mapping[str, str], size: Optional[Size]) -> subprocess.Popen[bytes]:
        """Start the process. The command's descriptors are closed in this process afterwards, even after a failure."""
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            orders_in, orders = _pipe(theirs, ours)
            errors, errors_out = _pipe(ours, theirs)
            streams, tty = self._with_pipes(theirs) if size is None else self._with_terminal(size, theirs)
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, _ROOT, str(orders_in), str(errors_out), tty],
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                cwd=self._job.folder,
                env={name: env[name] for name in _MARKS if name in env},
                pass_fds=(orders_in, errors_out),
                start_new_session=True,
            )
            ours.pop_all()
        self._order(process, orders, errors, words, env)
        return process

    def _order(
        self, process: subprocess.Popen[bytes], orders: int, errors: int, words: tuple[str, ...], env: Mapping[str, str]
    ) -> None:
        try:
            with contextlib.suppress(BrokenPipeError), open(orders, "wb") as pipe:
                self._job.admit(process.pid)
                order = {"command": list(words), "folder": str(self._job.folder), "env": dict(env)}
                pipe.write(json.dumps(order).encode())
        except BaseException:
            os.close(errors)
            process.kill()
            process.wait()
            raise
        try:
            check_executed(errors)
        except BaseException:
            process.wait()
            raise

    def _with_pipes(self, theirs: contextlib.ExitStack) -> tuple[tuple[int, int, int], str]:
        stdin, self.sink = os.pipe()
        theirs.callback(os.close, stdin)
        os.set_blocking(self.sink, False)
        return (stdin, self._output(FrameKind.DATA, theirs), self._output(FrameKind.ERROR_DATA, theirs)), ""

    def _output(self, kind: FrameKind, theirs: contextlib.ExitStack) -> int:
        """Add a pipe as a source of this kind, and return its writing end."""
        source, end = os.pipe()
        theirs.callback(os.close, end)
        self.sources[source] = kind
        os.set_blocking(source, False)
        return end

    def _with_terminal(self, size: Size, theirs: contextlib.ExitStack) -> tuple[tuple[int, int, int], str]:
        self._terminal, end = pty.openpty()
        theirs.callback(os.close, end)
        self.resize(size)
        os.set_blocking(self._terminal, False)
        self.sink, self.sources = self._terminal, {self._terminal: FrameKind.DATA}
        return (end, end, end), os.ttyname(end)

    # While it runs

    def read(self, source: int, size: int) -> bytes:
        try:
            received = os.read(source, size)
        except BlockingIOError:
            return b""
        except OSError:  # no process has the terminal open any more
            received = b""
        if not received:
            del self.sources[source]
            if source != self._terminal:
                os.close(source)
        return received

    def write(self, data: bytes) -> int:
        assert self.sink is not None
        try:
            return os.write(self.sink, data)
        except BlockingIOError:
            return 0
        except OSError:
            self._close_sink()
            return 0

    def end_input(self) -> None:
        if self.sink is not None and self._terminal is not None:
            with contextlib.suppress(OSError):
                os.write(self.sink, _EOF)
        else:
            self._close_sink()

    def resize(self, size: Size) -> None:
        if self._terminal is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))

    # The end

    def over(self) -> Optional[Over]:
        if not self._ended.is_set():
            return None
        if self.sources and time.monotonic() < self._ended_at + DRAIN_SECONDS:
            self._close_waker()  # it would stay readable and keep the relay spinning
            return None
        self.leave()
        code = self._process.returncode
        if code >= 0:
            return Over(code=code)
        return Over(signal=-code, job_ended=code == -signal.SIGKILL and self._job_has_ended())

    def _job_has_ended(self) -> bool:
        deadline = time.monotonic() + JOB_END_SECONDS
        while self._job.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def leave(self) -> None:
        """Send SIGHUP to the command and all its descendants, wait, and send SIGKILL. Idempotent."""
        if not self._left:
            self._left = True
            if not self._ended.is_set():
                signal_group(self._process.pid, signal.SIGHUP)
                self._ended.wait(HANG_UP_SECONDS)
            if self._process.returncode is None:
                signal_group(self._process.pid, signal.SIGKILL)
            self._ended.wait()  # the waiting thread must see the zombie before it is reaped here
            self._process.wait()
            if not kill_until_gone(lambda: find_by_variables(self._mark), KILL_SECONDS):
                log.error("processes of a session are still running")
        self._close()

    def end_now(self) -> None:
        """End the command without a grace period."""
        if not self._ended.is_set():
            signal_group(self._process.pid, signal.SIGKILL)
        self.leave()

    def _wait(self) -> None:
        """Wait until the command ends. WNOWAIT leaves a zombie, which keeps the pid while its group is signalled."""
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            signal_group(self._process.pid, signal.SIGHUP)
        else:
            self._process.wait()
        self._ended_at = time.monotonic()
        self._ended.set()
        with contextlib.suppress(OSError):  # the reading end may be closed already
            os.write(self._wakeup, b".")
        os.close(self._wakeup)

    def _close_sink(self) -> None:
        if self.sink is not None and self.sink != self._terminal:
            os.close(self.sink)
        self.sink = None

    def _close_waker(self) -> None:
        if self.waker is not None:
            os.close(self.waker)
        self.waker = None

    def _close(self) -> None:
        self._close_sink()
        self._close_waker()
        for source in self.sources:
            if source != self._terminal:
                os.close(source)
        self.sources = {}
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None


def _pipe(reads: contextlib.ExitStack, writes: contextlib.ExitStack) -> tuple[int, int]:
    """Return both ends of a pipe; each is closed by the stack of its owner."""
    reading, writing = os.pipe()
    reads.callback(os.close, reading)
    writes.callback(os.close, writing)
    return reading, writing


def _shell(env: Mapping[str, str]) -> str:
    shell = env.get("SHELL", "")
    return shell if os.access(shell, os.X_OK) else _DEFAULT_SHELL
