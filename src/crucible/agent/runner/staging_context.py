"""What staging needs of its runner: a voice, and to hear that nobody wants it any more."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from crucible.agent.files import Lock

LAST_LINES = 20
_TURN = 0.2


class StagingError(Exception):
    """The job could not be prepared; the text says why and what to do."""


class StagingAborted(Exception):
    """A stop came while the job was being prepared."""


class RemovableLock(Lock):
    """A lock whose file goes with it. All who lock that file must use this class."""

    def __init__(self, descriptor: int, path: Path) -> None:
        super().__init__(descriptor)
        self._path = path

    @classmethod
    def take(cls, path: Path) -> RemovableLock | None:
        """The lock, or None: somebody else holds it, or removed the file while we reached for it."""
        lock = Lock.take(path)
        if lock is None:
            return None
        ours = cls(lock._descriptor, path)
        if ours._is_there():
            return ours
        ours.release()
        return None

    def remove(self) -> None:
        """Let go of it and leave no file."""
        self._path.unlink()
        self.release()

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False


@dataclass(frozen=True)
class StagingContext:
    """`say` tells people what is going on, `log` writes to the job's log, `note` is kept with the job."""

    status: Callable[[str], None]
    log: Callable[[str], None]
    note: Callable[[str], None]
    aborted: threading.Event = field(default_factory=threading.Event)

    def check_aborted(self) -> None:
        if self.aborted.is_set():
            raise StagingAborted

    def take_lock(self, path: Path, waiting: str) -> RemovableLock:
        """The lock, once it is free; says what it waits for, and hears a stop."""
        lock = RemovableLock.take(path)
        if lock is None:
            self.status(waiting)
        while lock is None:
            self.aborted.wait(_TURN)
            self.check_aborted()
            lock = RemovableLock.take(path)
        return lock

    def run(self, command: Sequence[str], folder: Path, env: Mapping[str, str], seconds: float) -> tuple[bool, str]:
        """Run a program with its output in the job's log; whether it succeeded, and its last lines."""
        self.log("$ " + " ".join(command))
        try:
            process = subprocess.Popen(
                list(command),
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return False, f"cannot run {command[0]}: {error.strerror}"
        try:
            last, in_time = self._follow(process, time.monotonic() + seconds)
            # With its output closed it is as good as over; one that lingers is not waited for.
            ended = in_time and process.wait(timeout=30) == 0
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            _end(process)
        return ended, "\n".join(last) if in_time else f"it took longer than {seconds:g} seconds"

    def _follow(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[Sequence[str], bool]:
        assert process.stdout is not None
        last: deque[str] = deque(maxlen=LAST_LINES)
        rest = b""
        while time.monotonic() < deadline:
            self.check_aborted()
            if not select.select([process.stdout], [], [], _TURN)[0]:
                continue
            data = os.read(process.stdout.fileno(), 65536)
            *lines, rest = (rest + data).split(b"\n")
            lines += [rest] if rest and (not data or len(rest) > 65536) else []
            for line in lines:
                text = line.decode("utf-8", "replace").rstrip("\r")
                last.append(text)
                self.log(text)
            if not data:
                return last, True
        return last, False


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
