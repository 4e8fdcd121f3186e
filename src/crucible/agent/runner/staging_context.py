"""What staging needs from its runner: status reports, running programs, and the signal to abort."""

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
    """The job cannot be prepared; the text says why and what to do."""


class StagingAborted(Exception):
    """The job was stopped while it was being prepared."""


class RemovableLock(Lock):
    """A lock whose file is removed with it. Every user of that file must use this class."""

    def __init__(self, descriptor: int, path: Path) -> None:
        super().__init__(descriptor)
        self._path = path

    @classmethod
    def take(cls, path: Path) -> RemovableLock | None:
        """Take the lock; return None if another process holds it, or removed the file meanwhile."""
        lock = Lock.take(path)
        if lock is None:
            return None
        # The holder may have removed the file between our open and our lock: then we hold a lock on a deleted file.
        ours = cls(lock._descriptor, path)
        if ours._is_there():
            return ours
        ours.release()
        return None

    def remove(self) -> None:
        """Release the lock and remove its file."""
        self._path.unlink()
        self.release()

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False


@dataclass(frozen=True)
class StagingContext:
    """`status` shows what staging does now, `log` writes to the job's log, `note` adds a note to the job."""

    status: Callable[[str], None]
    log: Callable[[str], None]
    note: Callable[[str], None]
    aborted: threading.Event = field(default_factory=threading.Event)

    def check_aborted(self) -> None:
        """Raise StagingAborted if the job was stopped meanwhile."""
        if self.aborted.is_set():
            raise StagingAborted

    def take_lock(self, path: Path, waiting: str) -> RemovableLock:
        """Return the lock once it is free, showing `waiting` as the status. Raises StagingAborted."""
        lock = RemovableLock.take(path)
        if lock is None:
            self.status(waiting)
        while lock is None:
            self.aborted.wait(_TURN)
            self.check_aborted()
            lock = RemovableLock.take(path)
        return lock

    def run(self, command: Sequence[str], folder: Path, env: Mapping[str, str], seconds: float) -> tuple[bool, str]:
        """Run a program with its output in the job's log. Return whether it succeeded, and its last lines."""
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
            # Its output is closed, so it should exit soon; if it does not, it counts as failed.
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
