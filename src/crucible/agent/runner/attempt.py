"""Who runs an attempt: the first runner of it, or one that finishes what another left."""

from __future__ import annotations

import logging
import os
import signal
import threading

from crucible.agent.files import Lock, read_json, write_json
from crucible.agent.host.bootstrap import AssignmentFile
from crucible.agent.host.machine import MachineFacts
from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.agent.runner.recovery import RecoveryRunner
from crucible.agent.runner.runner import Runner
from crucible.wire.process import this_process

log = logging.getLogger(__name__)

MAX_TRIES = 5
"""Runners that may die while preparing, before the attempt is given up."""


def run_attempt(folder: AttemptFolder, machine: MachineFacts) -> int:
    """Run, or finish, the attempt in the folder. Returns at once when another runner has it or it is done.

    Call it in a process of its own that has no threads.
    """
    lock = Lock.take(folder.lock)
    if lock is None or folder.done.exists():
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Whoever ends this machine's processes one by one ends the job too, and that is to be reported.
        signal.signal(number, signal.SIG_IGN)
    threading.excepthook = _die
    tries = _count_try(folder)
    order = AssignmentFile.read(folder.root)
    began = folder.process.exists() or folder.exited.exists()
    life = RecoveryRunner if began or tries > MAX_TRIES else Runner
    life(order, folder, machine).run()
    return 0


def _count_try(folder: AttemptFolder) -> int:
    """Write down who runs the attempt; how many have tried."""
    before = (read_json(folder.runner) or {}).get("tries")
    tries = (before if isinstance(before, int) else 0) + 1
    me = this_process()
    doc = {"pid": me.pid, "start_time": me.start_time, "pgid": os.getpgid(0), "tries": tries}
    write_json(folder.runner, dict(doc))
    return tries


def _die(problem: threading.ExceptHookArgs) -> None:
    """A thread that ends by our mistake would leave a runner that waits for ever: a successor does better."""
    name = problem.thread.name if problem.thread is not None else "a thread"
    log.error("%s failed", name, exc_info=problem.exc_value)
    os._exit(70)  # sys.exit would end this thread alone
