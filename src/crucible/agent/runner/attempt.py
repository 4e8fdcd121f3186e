"""Run the attempt in a folder, as its first runner or as the successor of a runner that died."""

from __future__ import annotations

import logging
import os
import signal
import threading

from crucible.agent.clock import boottime
from crucible.agent.files import Lock, read_json, write_json
from crucible.agent.host.bootstrap import AssignmentFile
from crucible.agent.link.connection import ChannelError, Gone
from crucible.agent.process.user_process import UserProcess, confinement_name
from crucible.agent.runner import runner_events as ev
from crucible.agent.runner import runner_state as rs
from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.agent.runner.exit_record import LOST
from crucible.agent.runner.runner import MachineFacts, Runner
from crucible.wire.documents.messages import MessageKind
from crucible.wire.process import this_process

log = logging.getLogger(__name__)

MAX_RUNNERS = 5
"""Number of runners that may die before the program starts, until the attempt is given up."""


def run_attempt(folder: AttemptFolder, machine: MachineFacts) -> int:
    """Run or finish the attempt in the folder, and return an exit code. Returns at once if it is locked or done.

    Call it in its own process, without other threads.
    """
    lock = Lock.take(folder.lock)
    if lock is None or folder.done.exists():
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A machine that shuts down signals every process. The runner stays to report how the job ended.
        signal.signal(number, signal.SIG_IGN)
    runners = _count_runners(folder)
    assignment_file = AssignmentFile.read(folder.root)
    began = folder.process.exists() or folder.exited.exists()
    runner_class = RecoveryRunner if began or runners > MAX_RUNNERS else Runner
    runner = runner_class(assignment_file, folder, machine)
    threading.excepthook = lambda problem: _exit_on_thread_failure(problem, runner)
    try:
        runner.run()
    except OSError:
        if not runner.machine_folder.wait_until_known():
            raise
        runner.give_up()
    return 0


def _count_runners(folder: AttemptFolder) -> int:
    """Record this process as the attempt's runner, and return the number of runners so far, including this one."""
    before = (read_json(folder.runner) or {}).get("tries")
    count = (before if isinstance(before, int) else 0) + 1
    me = this_process()
    doc = {"pid": me.pid, "start_time": me.start_time, "pgid": os.getpgid(0), "tries": count}
    write_json(folder.runner, dict(doc))
    return count


def _exit_on_thread_failure(problem: threading.ExceptHookArgs, runner: Runner) -> None:
    """Exit: a runner that lost a thread to a bug would wait forever, but a successor can finish the attempt.

    Where the machine's folder is lost there is no successor. It may be being moved, with a link to be put in its place.
    """
    name = problem.thread.name if problem.thread is not None else "a thread"
    log.error("%s failed", name, exc_info=problem.exc_value)
    if runner.machine_folder.wait_until_known():
        runner.give_up()
    os._exit(70)  # sys.exit would end this thread alone


class RecoveryRunner(Runner):
    """Finishes an attempt whose runner died, perhaps after the program was started.

    It starts nothing: it ends the remaining processes, reports the exit, and delivers what is on disk.
    """

    def _make_user_process(self) -> tuple[UserProcess, str]:
        left = self._machine.limiter.find_left(confinement_name(self._assignment))
        return UserProcess.from_record(self._folder.process, self._job_variables(), left), ""

    def _begin(self) -> rs.Step:
        self._user.end_all()
        sent = {message.kind for message in self._spool.all_messages()}
        if MessageKind.ENDED in sent:
            return rs.RunnerState(0.0, None, boottime(), rs.Phase.ENDED), (ev.Finish(),)
        state = rs.RunnerState(0.0, None, boottime(), rs.Phase.SAVING)
        exited = self._exit.read()
        # EXITED comes right after message `after`. If the spool begins later, it was acknowledged and removed.
        was_acknowledged = exited is not None and self._spool.first > exited.after + 1
        if MessageKind.EXITED in sent or was_acknowledged:
            return state, (ev.StoreOutputs(),)
        message = ev.SendMessage(MessageKind.EXITED, dict(LOST if exited is None else exited.data))
        return state, (message, ev.StoreOutputs())

    def _store_outputs(self) -> None:
        """Fetch the secrets again to redact names and results, or continue without them if they are refused."""
        channel = self._new_channel()
        try:
            self._redact(tuple(channel.secrets().values()) if self._assignment.secrets else ())
        except Gone:
            self._contacts.release_attempt()
        except ChannelError as error:
            log.warning("the job's remaining outputs are not redacted: %s", error)
        finally:
            channel.close()
        super()._store_outputs()
