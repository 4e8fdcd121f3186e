"""End a local machine: a machine that is gone has no process left on this computer."""

from __future__ import annotations

import time
from collections.abc import Iterable
from signal import SIGKILL, SIGTERM, Signals

from crucible.backends.base import NotYetGone
from crucible.backends.local.folder import Ending, MachineFolder
from crucible.wire.process import Process

GRACE_SECONDS = 10.0
"""Between asking a machine's processes to end and killing them."""
WAIT_SECONDS = 0.4
"""Most processes end at once: one call is then enough."""
START_SECONDS = 10.0
"""After this, a host that a dead server was about to start no longer comes up."""
_LOOK_SECONDS = 0.01


def end_machine(folder: MachineFolder, now: float) -> None:
    """One step: ask what lives to end, or kill it when the grace is over; then remove the folder.

    Raises NotYetGone while something lives. Runners are only killed, never asked: once the user's process has
    ended they report how, and end. `now` is on a clock that all callers share while the computer is up.
    """
    before = folder.ending or Ending(now, frozenset())
    found = folder.processes()
    told = before.asked | found
    if 0 <= now - before.since < GRACE_SECONDS:
        _send(SIGTERM, found - before.asked)
    else:  # also when that clock has begun anew: the computer was restarted meanwhile
        _send(SIGKILL, told | folder.runners())
    folder.write_ending(Ending(before.since, told))
    _wait(told | folder.runners())
    _check(folder, told)
    folder.remove()


def _send(number: Signals, processes: Iterable[Process]) -> None:
    for process in processes:
        process.send(number)


def _wait(processes: Iterable[Process]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while any(process.alive for process in processes) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)


def _check(folder: MachineFolder, told: frozenset[Process]) -> None:
    left = [process for process in told | folder.processes() | folder.runners() if process.alive]
    if left:
        pids = sorted(process.pid for process in left)
        raise NotYetGone(f"Processes of the machine still run: {', '.join(map(str, pids))}.", pids=pids)
    locks = folder.host_locked or any(attempt.locked for attempt in folder.attempts())
    if locks or folder.starting(START_SECONDS):
        raise NotYetGone("A process of the machine is starting or ending just now.")
