"""The user's process and all its descendants: started once, signalled, and ended completely."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crucible.agent.clock import boottime
from crucible.agent.files import read_json, write_json
from crucible.agent.process.launcher import CannotExecute, Launcher
from crucible.agent.process.limits import Confinement, Limiter, ProcessesRemain, RlimitLimiter
from crucible.agent.process.process_groups import find_by_variables, kill_until_gone, signal_group
from crucible.agent.runner.runner_events import ProcessEnded
from crucible.wire.documents.desired import Assignment
from crucible.wire.process import Process, start_time

log = logging.getLogger(__name__)

END_SECONDS = 10.0
PREPARE_ATTEMPTS = 5


def confinement_name(assignment: Assignment) -> str:
    return assignment.attempt if assignment.rank == 0 else f"{assignment.attempt}.{assignment.rank}"


def prepare_confinement(limiter: Limiter, assignment: Assignment, folder: Path) -> tuple[Confinement, str]:
    """Return a confinement with the assignment's limits, and a text about what it enforces.

    Falls back to limits without cgroups if cgroups fail.
    """
    name, limits = confinement_name(assignment), assignment.limits
    for _ in range(PREPARE_ATTEMPTS):
        try:
            _clear(limiter, name)
            return limiter.prepare(name, limits.memory_bytes, limits.cpus), limiter.describe()
        except OSError as error:  # another runner may just have removed the shared parent
            log.warning("cannot prepare the limits: %s", error)
            time.sleep(0.01)
    fallback = RlimitLimiter(folder)
    return fallback.prepare(name, limits.memory_bytes, limits.cpus), fallback.describe()


def _clear(limiter: Limiter, name: str) -> None:
    """Remove the confinement of a runner that died during preparation. No process of the attempt runs yet."""
    left = limiter.find_left(name)
    if left is not None:
        left.kill_all()
        left.remove()


class Stopwatch:
    """Measures a duration by the boot-time clock; `seconds` is None until `begin` and `end` were called."""

    def __init__(self) -> None:
        self._began: float | None = None
        self.seconds: float | None = None

    def begin(self) -> None:
        self._began = boottime()

    def end(self) -> None:
        if self._began is not None:
            self.seconds = round(boottime() - self._began, 3)


@dataclass(frozen=True)
class UserProcess:
    """`process` leads its own session and process group; `record` is its file in the attempt's folder.

    `variables` are in the environment of all its descendants. After `wait`, `ran.seconds` is how long it ran.
    """

    process: Process
    record: Path
    variables: Mapping[str, str]
    confinement: Confinement | None
    launcher: Launcher | None = None
    ran: Stopwatch = field(default_factory=Stopwatch)

    @classmethod
    def prepare(cls, confinement: Confinement, output: int, record: Path, variables: Mapping[str, str]) -> UserProcess:
        """Fork the child that becomes the user's process. Call it while there are no threads."""
        launcher = Launcher.prepare(confinement.enter, output)
        process = Process(launcher.pid, start_time(launcher.pid) or "")
        return cls(process, record, variables, confinement, launcher)

    @classmethod
    def from_record(cls, record: Path, variables: Mapping[str, str], confinement: Confinement | None) -> UserProcess:
        """Return the process of a runner that died, which may still run."""
        doc = read_json(record) or {}
        pid = doc.get("pid")
        process = Process(pid if isinstance(pid, int) else 0, str(doc.get("start_time", "")))
        return cls(process, record, variables, confinement)

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        """Start the command. The record is on disk before any of the user's code runs. Raises CannotExecute."""
        assert self.launcher is not None
        doc: dict[str, object] = {"pid": self.pid, "pgid": self.pid, "start_time": self.process.start_time}
        write_json(self.record, doc, durable=True)
        self.ran.begin()
        try:
            self.launcher.launch(command, str(folder), env)
        except CannotExecute:
            self._reap()
            raise

    def abandon(self) -> None:
        """Let the child exit without starting the command."""
        assert self.launcher is not None
        self.launcher.abandon()
        self._reap()

    def send(self, number: int) -> None:
        """Send the signal to the group; SIGKILL also to processes that left the group."""
        signal_group(self.pid, number)
        if number == signal.SIGKILL and self.confinement is not None:
            for pid in self.confinement.pids():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def wait(self) -> ProcessEnded:
        """Wait for the end of the process, then kill everything it left behind."""
        if hasattr(os, "waitid"):  # macOS has it only from Python 3.13 on
            # WNOWAIT leaves a zombie, which keeps the pid: the group cannot become another one's while we kill it.
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self.ran.end()
            self.end_all()
        _, status, usage = os.wait4(self.pid, 0)
        if self.ran.seconds is None:
            self.ran.end()
        self.end_all()  # without waitid the only call
        cpu = usage.ru_utime + usage.ru_stime
        peak = usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss * 1024  # macOS counts bytes, others KiB
        oom = False
        if self.confinement is not None:
            oom = self.confinement.oom_killed()
            cpu = max(cpu, self.confinement.usage()[0])
            peak = self.confinement.peak_memory() or peak
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        return ProcessEnded(code, ended_by, oom, round(cpu, 3), peak)

    def end_all(self) -> None:
        """Kill the process, its group, its confinement and all processes with its variables; wait for their end."""
        # The start time shows that the pid still belongs to our process, and not to a later one.
        if start_time(self.pid, zombies=True) == self.process.start_time:
            signal_group(self.pid, signal.SIGKILL)
        try:
            if self.confinement is not None:
                self.confinement.kill_all()
        except ProcessesRemain as error:
            log.error("processes of the job cannot be killed: %s", error)
        if not kill_until_gone(lambda: find_by_variables(dict(self.variables)), END_SECONDS):
            log.error("processes of the job are still running")

    def remove_confinement(self) -> None:
        """Remove the confinement."""
        try:
            if self.confinement is not None:
                self.confinement.remove()
        except OSError as error:
            log.error("the limits of the job cannot be removed: %s", error)

    def _reap(self) -> None:
        os.waitpid(self.pid, 0)
