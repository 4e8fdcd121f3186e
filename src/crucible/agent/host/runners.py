"""The runner processes of a host: fork them, adopt those of an earlier host, and notice when they end."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from typing import Callable

from crucible.agent.clock import Deadline
from crucible.agent.files import close_descriptors, is_locked
from crucible.agent.host.bootstrap import AssignmentFile
from crucible.agent.host.host_state import Key
from crucible.agent.runner.attempt import run_attempt
from crucible.agent.runner.attempt_folder import AttemptFolder, list_attempts
from crucible.agent.runner.runner import MachineFacts
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.documents.desired import Assignment

log = logging.getLogger(__name__)


class RunnerProcesses:
    """Forks runners. `after_fork` runs first in each child, to set up logging again. The host must have no threads."""

    def __init__(self, bootstrap: Bootstrap, machine: MachineFacts, after_fork: Callable[[], None]) -> None:
        self._bootstrap = bootstrap
        self._machine = machine
        self._after_fork = after_fork
        self._children: dict[int, Key] = {}
        self._adopted: set[Key] = set()

    def folder(self, key: Key) -> AttemptFolder:
        return AttemptFolder.for_attempt(self._bootstrap.attempts, *key)

    def adopt(self) -> Iterator[tuple[Key, bool, bool]]:
        """Yield the attempts that an earlier host left: the key, whether its runner is alive, whether it is done."""
        for attempt, rank, folder in list_attempts(self._bootstrap.attempts):
            alive = is_locked(folder.lock)
            if alive:
                self._adopted.add((attempt, rank))
            yield (attempt, rank), alive, folder.done.exists()

    def start(self, assignment: Assignment, lease_seconds: float | None, deadline: Deadline | None) -> None:
        """Write the assignment file, then fork. Raises OSError."""
        folder = self.folder((assignment.attempt, assignment.rank))
        folder.create()
        AssignmentFile(assignment, self._bootstrap, lease_seconds, deadline).write(folder.root)
        self.fork((assignment.attempt, assignment.rank))

    def has_assignment(self, key: Key) -> bool:
        return (self.folder(key).root / "assignment.json").exists()

    def fork(self, key: Key) -> None:
        """Start a runner in the attempt's folder. Raises OSError."""
        pid = os.fork()
        if pid:
            self._children[pid] = key
            return
        code = 70
        try:
            code = self._run(key)
        except BaseException:
            log.exception("the runner of %s failed", key)
        finally:
            # Never return into the host's loop, and run none of its exit handlers.
            os._exit(code)

    def ended(self) -> Iterator[tuple[Key, bool]]:
        """Yield the runners that ended since the last call, and whether their attempt is done."""
        for key in [*self._reap(), *self._ended_adopted()]:
            yield key, self.folder(key).done.exists()

    def remove(self, key: Key) -> None:
        self.folder(key).remove()

    def _run(self, key: Key) -> int:
        signal.set_wakeup_fd(-1)  # the inherited descriptor is the host's pipe
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()  # signals to the host's group or terminal do not reach the runner
        close_descriptors(frozenset())
        self._after_fork()
        return run_attempt(self.folder(key), self._machine)

    def _reap(self) -> Iterator[Key]:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            key = self._children.pop(pid, None)
            if key is not None:
                log.info("the runner of %s ended with status %s", key, status)
                yield key

    def _ended_adopted(self) -> Iterator[Key]:
        """Yield adopted runners that ended. They are not our children, so their lock file shows it."""
        for key in list(self._adopted):
            if not is_locked(self.folder(key).lock):
                self._adopted.discard(key)
                yield key
