"""The common part of confinements by cgroup v1 and v2."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from crucible.agent.process.limits.base import KILL_DEADLINE, Confinement, ProcessesRemain
from crucible.agent.process.limits.files import Files

FOLDER = "crucible"
PERIOD = 50_000
"""Microseconds. Shorter than the kernel's default, so that half a CPU feels like a slow one and does not stutter."""

MIN_QUOTA = 1000
"""Microseconds; the kernel accepts no less."""

_PAUSE = 0.01


_CONTROLLERS = {"memory": "memory", "cpu": "CPU", "pids": "number of processes"}


def describe_limits(version: str, usable: Collection[str]) -> str:
    """Return a text for users: what these controllers enforce, and what is not enforced."""
    on = [label for controller, label in _CONTROLLERS.items() if controller in usable]
    off = [label for controller, label in _CONTROLLERS.items() if controller not in usable]
    return f"cgroup {version}: enforced: {', '.join(on) or 'nothing'}; not enforced: {', '.join(off) or 'nothing'}"


def quota(cpus: float) -> int:
    """Return microseconds of CPU per PERIOD."""
    return max(MIN_QUOTA, int(cpus * PERIOD))


def wait_until(done: Callable[[], bool], deadline: float, what: str) -> None:
    """Wait until `done` returns true. Raises ProcessesRemain after `deadline` seconds."""
    end = time.monotonic() + deadline
    while not done():
        if time.monotonic() > end:
            raise ProcessesRemain(errno.EBUSY, what)
        time.sleep(_PAUSE)


class CgroupConfinement(Confinement):
    """One folder per hierarchy; all of them hold the same processes."""

    def __init__(self, files: Files, folders: Sequence[Path]) -> None:
        self._files = files
        self._folders = tuple(folders)

    def enter(self) -> None:
        self.admit(0)  # 0 is the writer itself, in any pid namespace

    def admit(self, pid: int) -> None:
        for folder in self._folders:
            self._files.write(folder / "cgroup.procs", str(pid))

    def pids(self) -> list[int]:
        folders = [folder for top in self._folders for folder in self._files.subtree(top)]
        texts = [self._files.read(folder / "cgroup.procs") for folder in folders]
        return sorted({int(pid) for text in texts for pid in text.split() if pid != "0"})  # 0: in another pid namespace

    def tick(self) -> bool:
        if not self.oom_killed():
            return False
        # The kernel may have killed one process of many; the rest would hang or compute nonsense.
        self.kill_all()
        return True

    def kill_all(self) -> None:
        self._stop_forks()
        wait_until(self._killed, KILL_DEADLINE, "killed processes are still there")

    def remove(self) -> None:
        wait_until(self._removed, KILL_DEADLINE, "a control group is still in use")
        for folder in self._folders:
            # This fails while other attempts use the parent.
            with contextlib.suppress(OSError):
                self._files.remove(folder.parent)

    def _stop_forks(self) -> None:
        """Prevent new processes: a job may fork faster than we kill."""

    def _killed(self) -> bool:
        left = self.pids()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    def _removed(self) -> bool:
        try:
            for top in self._folders:
                for folder in self._files.subtree(top):
                    self._files.remove(folder)
        except OSError as error:
            if error.errno in (errno.EBUSY, errno.ENOTEMPTY) and not self.pids():
                return False
            if error.errno in (errno.EBUSY, errno.ENOTEMPTY):
                raise ProcessesRemain(errno.EBUSY, "processes are still in the control group") from error
            raise
        return True
