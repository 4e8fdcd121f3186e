"""The folder of one machine: what is known of it, on the disk of its own computer, for any later server.

tags.json       the deployment and id of the machine, written before anything is started
launch.lock     held during a launch or a removal
launch.json     the process that the last launch started
ending.json     when termination began, and the processes that it found
bootstrap.json  the bootstrap document of the host; host.lock, host.json and attempts/ belong to the agent
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Callable

from crucible.wire.files.locks import hold_lock
from crucible.wire.files.paths import UnsafePath, safe_name
from crucible.wire.machines.processes import group_members, processes_with_variable
from crucible.wire.process import Process, is_locked

_REMOVED_LAST = frozenset({"tags.json", "launch.lock"})


@dataclass(frozen=True)
class Tags:
    deployment: str
    machine: str


@dataclass(frozen=True)
class Launched:
    """The last launch. `process`: None if the server died before it could note it."""

    process: Process | None
    at: float
    """Wall clock, seconds."""


@dataclass(frozen=True)
class Ending:
    """A termination. `since` is on the clock of its caller; `asked` are the processes that got SIGTERM."""

    since: float
    asked: frozenset[Process]


@dataclass(frozen=True)
class MachineFolder:
    path: Path

    @contextlib.contextmanager
    def hold(self, seconds: float = 0.0) -> Iterator[None]:
        """Hold the lock of launches and removals. Raises TimeoutError, or FileNotFoundError without a folder."""
        with hold_lock(self.path / "launch.lock", seconds):
            yield

    def make(self) -> None:
        """Make the folder, and that of all machines; never the state folder above them, which may be gone."""
        for path in (self.path.parent, self.path):
            path.mkdir(mode=0o700, exist_ok=True)

    # Files of the backend

    @property
    def tags(self) -> Tags | None:
        doc = read_doc(self.path / "tags.json")
        deployment, machine = doc.get("deployment"), doc.get("machine")
        if not isinstance(deployment, str) or not isinstance(machine, str):
            return None
        return Tags(deployment, machine)

    def write_tags(self, tags: Tags) -> None:
        write_doc(self.path / "tags.json", {"deployment": tags.deployment, "machine": tags.machine})

    @property
    def launched(self) -> Launched | None:
        doc = read_doc(self.path / "launch.json")
        at = doc.get("at")
        return Launched(_process(doc), float(at)) if isinstance(at, int | float) else None

    def write_launched(self, launched: Launched) -> None:
        write_doc(self.path / "launch.json", {"at": launched.at, **_doc(launched.process)})

    @property
    def ending(self) -> Ending | None:
        doc = read_doc(self.path / "ending.json")
        since, items = doc.get("since"), doc.get("told")
        if not isinstance(since, int | float) or not isinstance(items, list):
            return None
        asked = (_process(item) for item in items if isinstance(item, dict))
        return Ending(float(since), frozenset(process for process in asked if process))

    def write_ending(self, ending: Ending) -> None:
        asked = [_doc(process) for process in sorted(ending.asked, key=lambda process: process.pid)]
        write_doc(self.path / "ending.json", {"since": ending.since, "told": asked})

    # Files of the agent

    @property
    def host(self) -> Process | None:
        """The living host, or None."""
        process = _process(read_doc(self.path / "host.json"))
        # Probing takes the lock for a moment, which could keep out a host that is just starting: probe it last.
        return process if process and process.alive and self.host_locked else None

    @property
    def host_locked(self) -> bool:
        return is_locked(self.path / "host.lock")

    def starting(self, seconds: float) -> bool:
        """Return whether a launch of the last `seconds` may still bring up a host."""
        launched = self.launched
        if launched is None or not 0 <= time.time() - launched.at < seconds:
            return False
        return launched.process is None or launched.process.alive

    def attempts(self) -> tuple[AttemptFolder, ...]:
        return tuple(AttemptFolder(path) for path in _folders(self.path / "attempts"))

    def unfinished(self) -> int:
        """Return the number of attempts that a host has yet to finish."""
        return sum(attempt.unfinished for attempt in self.attempts())

    def processes(self) -> frozenset[Process]:
        """Return every living process of this machine except runners: hosts, and the processes of users' code."""
        launched = self.launched
        hosts = {_process(read_doc(self.path / "host.json")), launched.process if launched else None}
        attempts = self.attempts()
        users = {process for attempt in attempts for process in attempt.group()}
        if attempts:
            users |= processes_with_variable("CRUCIBLE_ATTEMPT_ID", {attempt.attempt for attempt in attempts})
        return frozenset(process for process in hosts | users if process and process.alive)

    def runners(self) -> frozenset[Process]:
        found = (attempt.runner for attempt in self.attempts())
        return frozenset(process for process in found if process)

    def observe(self, launch_seconds: float) -> tuple[str, str]:
        """Return the machine's state (`up`, `starting`, `halted` or `gone`), and why.

        `launch_seconds`: how long after its launch a host may still come up.
        """
        if self.tags is None:
            return "gone", "there is no such machine"
        if self.host:
            return "up", ""
        if self.starting(launch_seconds):
            return "starting", ""
        left = self.unfinished()
        if left:
            return "halted", f"no host runs; unfinished attempts: {left}"
        return "gone", "its host has ended and left nothing"

    def living_elsewhere(self) -> frozenset[Process]:
        """Return living hosts and runners that are noted here but have not locked this folder, a copy of theirs."""
        host = _process(read_doc(self.path / "host.json"))
        # As above, probe the lock last: most hosts that are noted have ended, and another may just be starting.
        hosts = {host} if host and host.alive and not self.host_locked else set()
        return frozenset(hosts | {runner for attempt in self.attempts() if (runner := attempt.runner_elsewhere)})

    def remove(self) -> None:
        """Remove the folder, its tags last, so that an interrupted removal is found again. Call it inside `hold`."""
        for item in list(self.path.iterdir()):
            if item.name not in _REMOVED_LAST:
                _remove(item)
        for name in sorted(_REMOVED_LAST, reverse=True):
            (self.path / name).unlink(missing_ok=True)
        self.path.rmdir()


def list_machines(parent: Path) -> Iterator[MachineFolder]:
    """Yield the folder of every machine below `parent`, in the order of their names."""
    for path in _folders(parent):
        yield MachineFolder(path)


def is_machine_name(name: str) -> bool:
    """Return whether this can be the name of a machine's folder, which is not a path."""
    try:
        return "/" not in safe_name(name) and not name.startswith(".")
    except UnsafePath:
        return False


@dataclass(frozen=True)
class AttemptFolder:
    path: Path

    @property
    def attempt(self) -> str:
        """The attempt's id: the folder's name without the rank."""
        return self.path.name.rpartition("-")[0]

    @property
    def locked(self) -> bool:
        return is_locked(self.path / "runner.lock")

    @property
    def unfinished(self) -> bool:
        if (self.path / "done").exists():
            return self.locked
        return (self.path / "assignment.json").exists()

    @property
    def runner(self) -> Process | None:
        process = _process(read_doc(self.path / "runner.json"))
        return process if process and process.alive else None

    @property
    def runner_elsewhere(self) -> Process | None:
        """A living runner that is noted here but has not locked this folder."""
        runner = self.runner
        return runner if runner and not self.locked else None

    def group(self) -> frozenset[Process]:
        """Return the process group of the user's process, while the group's leader lives."""
        leader = _process(read_doc(self.path / "process.json")) or self._leader_by_runner()
        return group_members(leader) if leader else frozenset()

    def _leader_by_runner(self) -> Process | None:
        doc = read_doc(self.path / "runner.json")
        return _process({"pid": doc.get("pgid"), "start_time": doc.get("process_start_time")})


def read_doc(path: Path) -> dict[str, object]:
    """Return a JSON object; empty if the file is missing or incomplete."""
    try:
        doc = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return doc if isinstance(doc, dict) else {}


def write_doc(path: Path, doc: dict[str, object]) -> None:
    """Write the document atomically and durably; only its owner may read it."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(doc, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _process(doc: dict[str, object]) -> Process | None:
    pid, started = doc.get("pid"), doc.get("start_time")
    if not isinstance(pid, int) or started is None:
        return None
    return Process(pid, str(started))


def _doc(process: Process | None) -> dict[str, object]:
    return {"pid": process.pid, "start_time": process.start_time} if process else {}


def _folders(parent: Path) -> Iterable[Path]:
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _remove(item: Path) -> None:
    if item.is_dir() and not item.is_symlink():
        shutil.rmtree(item, onerror=_unlock_and_retry)
    else:
        item.unlink(missing_ok=True)


def _unlock_and_retry(
    function: Callable[..., object],
    path: str,
    trouble: tuple[type[BaseException], BaseException, TracebackType],
) -> None:
    """Make folders writable and retry, for shutil.rmtree: a job may leave read-only ones, and files may vanish."""
    if isinstance(trouble[1], FileNotFoundError):
        return
    for blocked in (os.path.dirname(path), path):
        mode = os.lstat(blocked).st_mode
        if not stat.S_ISLNK(mode):
            os.chmod(blocked, mode | stat.S_IRWXU)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
