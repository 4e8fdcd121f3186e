"""End a machine: stop all of its processes, then remove its folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from signal import SIGKILL, SIGTERM, Signals

from crucible.wire.machines.folder import Ending, MachineFolder
from crucible.wire.process import Process

GRACE_SECONDS = 10.0
"""Between asking a machine's processes to end and killing them."""
WAIT_SECONDS = 0.4
"""Most processes end at once: one call is then enough."""
START_SECONDS = 10.0
"""After this, a host that a dead server was about to start no longer comes up."""
_POLL_SECONDS = 0.01


class StillThere(Exception):
    """The machine has not ended yet. `pids` are the processes that run."""

    def __init__(self, why: str, pids: Sequence[int] = ()) -> None:
        super().__init__(why)
        self.pids = list(pids)


def end_machine(folder: MachineFolder, now: float) -> None:
    """Do one step of ending a machine: send SIGTERM, or SIGKILL after the grace period; then remove the folder.

    Raises StillThere while a process lives. Runners never get SIGTERM: once the user's process has ended they report
    that and exit. `now` is on a clock that all callers share until a reboot.
    """
    before = folder.ending or Ending(now, frozenset())
    living = folder.processes()
    asked = before.asked | living
    if 0 <= now - before.since < GRACE_SECONDS:
        _send(SIGTERM, living - before.asked)
    else:  # also if the clock has restarted from zero: the computer was rebooted meanwhile
        _send(SIGKILL, asked | folder.runners())
    folder.write_ending(Ending(before.since, asked))
    _wait(asked | folder.runners())
    _check_gone(folder, asked)
    folder.remove()


def _send(number: Signals, processes: Iterable[Process]) -> None:
    for process in processes:
        process.send(number)


def _wait(processes: Iterable[Process]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while any(process.alive for process in processes) and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)


def _check_gone(folder: MachineFolder, asked: frozenset[Process]) -> None:
    left = [process for process in asked | folder.processes() | folder.runners() if process.alive]
    if left:
        pids = sorted(process.pid for process in left)
        raise StillThere(f"Processes of the machine are still running: {', '.join(map(str, pids))}.", pids)
    locks = folder.host_locked or any(attempt.locked for attempt in folder.attempts())
    if locks or folder.starting(START_SECONDS):
        raise StillThere("A process of the machine is still starting or ending.")
