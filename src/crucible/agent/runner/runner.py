"""The runner: one process per attempt on this machine, from staging to the last acknowledged message.

    1. stage     fetch code, data, checkpoint and secrets; find or build the Python       (thread `stage`)
    2. start     let the child that was forked at the beginning become the user's program
    3. watch     read output, sample usage, store checkpoints, forward stop requests      (thread `wait`)
    4. stop      stop file and SIGTERM, SIGKILL after the grace period
    5. collect   report the result, store the outputs                                     (thread `outputs`)
    6. finish    wait until every message and log segment is acknowledged, then exit

`runner_state` decides what happens when, as a pure reducer. This module is the shell around it: `Runner.run` turns what
happens into events, and `_act` performs the actions that the reducer returns.

Everything the runner reports goes into the spool on disk first, and the uploader delivers it when it can. So the job
goes on while the control plane is away, and after the host has died. If the runner itself dies, its host starts a
`RecoveryRunner` (in `attempt.py`), which ends the job's processes and delivers what is on disk.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Callable

from crucible import __version__
from crucible.agent.checkpoints import CheckpointCallbacks, CheckpointKeeper
from crucible.agent.clock import Deadline, boottime
from crucible.agent.files import read_json, write_file, write_json
from crucible.agent.folder_watch import MachineFolderWatch
from crucible.agent.host.bootstrap import AssignmentFile
from crucible.agent.host.interruption import start_interruption_watch
from crucible.agent.link.channel import DesiredAttempt
from crucible.agent.link.channels import runner_channel_factory, session_socket_factory
from crucible.agent.link.connection import Gone
from crucible.agent.link.reporter import Reporter, clean_data
from crucible.agent.link.spool import Spool
from crucible.agent.link.uploader import Uploader
from crucible.agent.output.output_log import OutputLimits, OutputLog, last_announced
from crucible.agent.output.pump import make_pipe
from crucible.agent.output.redaction import Redactor
from crucible.agent.process.launcher import CannotExecute
from crucible.agent.process.limits import Limiter
from crucible.agent.process.signals import ProcessSignals
from crucible.agent.process.user_process import UserProcess, prepare_confinement
from crucible.agent.python.pythons import installed_packages, python_version
from crucible.agent.runner import runner_events as ev
from crucible.agent.runner import runner_state as rs
from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.agent.runner.collect import OutputCollector
from crucible.agent.runner.exit_record import ExitData, ExitRecord
from crucible.agent.runner.lease import ContactTracker, DesiredPoller
from crucible.agent.runner.monitor import Monitor
from crucible.agent.runner.preparation import PreparedJob, prepare
from crucible.agent.runner.staging_context import StagingAborted, StagingContext, StagingError
from crucible.agent.sessions import JobContext, SessionManager
from crucible.wire.documents.messages import MessageKind

log = logging.getLogger(__name__)

TURN_SECONDS = 0.1
LAST_TURN_SECONDS = 0.01
"""Poll interval while only the delivery is left. Short, because users wait for it."""


@dataclass(frozen=True)
class MachineFacts:
    """What the host detected about its machine, once for all its runners."""

    limiter: Limiter
    env: Mapping[str, str]
    has_gpus: bool = False


class Runner:
    """Runs one attempt. Other threads only put events into `_events`; `run` alone changes the state."""

    def __init__(self, assignment_file: AssignmentFile, folder: AttemptFolder, machine: MachineFacts) -> None:
        self._assignment_file = assignment_file
        self._assignment = assignment_file.assignment
        self._folder = folder
        self.machine_folder = MachineFolderWatch(folder.machine)
        self._machine = machine
        self._events: queue.Queue[ev.Event] = queue.Queue()
        # A channel is for one thread: each thread below makes its own.
        self._new_channel = runner_channel_factory(assignment_file.bootstrap, assignment_file.assignment)
        self._spool = Spool(folder.spool)
        self._contacts = ContactTracker(lambda: self._events.put(ev.AttemptReleased()), assignment_file.lease_seconds)
        self._reporter = Reporter(self._spool, on_message=self._wake_uploader)
        self._checkpoints = CheckpointKeeper(
            folder,
            self._new_channel(),
            CheckpointCallbacks(
                announce=lambda data: self._reporter.send(MessageKind.CHECKPOINT, data),
                note=self._reporter.note,
                release=self._contacts.release_attempt,
            ),
        )
        self._exit = ExitRecord(folder.exited)
        self._log = OutputLog(
            folder.output_log,
            self._reporter.note,
            OutputLimits(self._assignment.limits.output_bytes),
            last_announced(self._spool.all_messages()),
        )
        self._monitor = Monitor(folder.report, self._log, self._reporter, self._checkpoints.add_note)
        self._collector = OutputCollector(folder, self._assignment, self._reporter)
        self._uploader = Uploader(self._new_channel(), self._spool, self._log, self._contacts)
        self._staging = StagingContext(self._reporter.staging, self._log_line, self._reporter.note)
        self._prepared: PreparedJob | None = None
        self._finish: ev.Finish | None = None
        # Forks: no thread may have been started before this line.
        self._user, self._limits = self._make_user_process()
        self._signals = ProcessSignals(folder, self._user)
        self._sessions = SessionManager(
            session_socket_factory(assignment_file.bootstrap, assignment_file.assignment), self._job_context
        )

    def run(self) -> None:
        """Run the attempt. Returns once everything is acknowledged, or the control plane has released the attempt.

        Returns too when the machine's folder is gone: the job's program is ended then, as nothing of it can be kept.
        """
        self._uploader.start()
        state, actions = self._begin()
        self._listen()
        self._perform(actions)
        while not self._is_finished():
            if self.machine_folder.is_lost():
                self.give_up()
                return
            if self.machine_folder.is_gone:  # lost, or being moved
                time.sleep(TURN_SECONDS)
                continue
            for event in self._next_events():
                state, actions = rs.step(state, event)
                self._perform(actions)
            if self._contacts.has_lease_expired():
                self._events.put(ev.LeaseExpired())
            self._log.cut_if_due()
            if state.phase is rs.Phase.RUNNING:
                self._monitor.tick()
        self._leave()

    def give_up(self) -> None:
        """End all processes of the job; write and report nothing."""
        log.error("ending the job: the machine's folder was removed or replaced")
        self._staging.aborted.set()
        self._sessions.end()
        self._user.end_all()
        self._user.remove_confinement()

    # Events

    def _begin(self) -> rs.Step:
        self._reporter.staging("preparing")
        a = self._assignment
        if a.stop:  # requested before this runner started
            self._events.put(ev.StopRequested())
        return rs.begin(a.grace, a.limits.seconds, boottime(), self._assignment_file.deadline, a.checkpoint)

    def _listen(self) -> None:
        """Start the threads that poll for the desired state and for interruption notices."""
        known = DesiredAttempt(self._assignment.stop, self._assignment.checkpoint)
        DesiredPoller(self._new_channel(), self._contacts, self._on_desired, known).start()
        url = self._assignment_file.bootstrap.interruption_url
        start_interruption_watch(url, lambda seconds: self._events.put(ev.InterruptionNoticed(seconds)))

    def _on_desired(self, desired: DesiredAttempt) -> None:
        if desired.stop:
            self._events.put(ev.StopRequested())
        if desired.lease is not None:
            self._contacts.set_lease(desired.lease.seconds)
        if desired.ends_in is not None:
            self._events.put(ev.DeadlineChanged(Deadline.after(desired.ends_in.seconds, boottime())))
        self._events.put(ev.CheckpointRequested(desired.checkpoint))
        self._sessions.start_sessions(desired.sessions)

    def _next_events(self) -> tuple[ev.Event, ...]:
        """Wait one turn for an event. A tick comes before it, so that the state knows the time of the event."""
        try:
            first = self._events.get(timeout=LAST_TURN_SECONDS if self._finish else TURN_SECONDS)
        except queue.Empty:
            return (ev.Tick(boottime()),)
        if isinstance(first, ev.ProcessEnded):
            first = replace(first, by_itself=self._signals.ended_first)
        return (ev.Tick(boottime()), first)

    # Actions

    def _perform(self, actions: ev.Actions) -> None:
        for action in actions:
            self._act(action)

    def _act(self, action: ev.Action) -> None:
        if isinstance(action, ev.SendMessage):
            self._send(action)
        elif isinstance(action, ev.StartStaging):
            self._start_thread(self._stage, "stage")
        elif isinstance(action, ev.AbortStaging):
            self._staging.aborted.set()
        elif isinstance(action, ev.StartProcess):
            self._events.put(self._start_process())
            if self._monitor.started:
                # Wait only now, so that the end of a short process is not handled before its start.
                self._start_thread(lambda: self._events.put(self._user.wait()), "wait")
        elif isinstance(action, ev.SendSignal):
            self._signals.send_signal(action.number)
        elif isinstance(action, ev.WriteStopFile):
            self._signals.write_stop_file()
        elif isinstance(action, ev.RequestCheckpoint):
            self._signals.request_checkpoint(self._prepared.env if self._prepared is not None else {})
        elif isinstance(action, ev.StoreOutputs):
            self._start_thread(self._store_outputs, "outputs")
        else:
            self._finish = action

    def _wake_uploader(self) -> None:
        self._uploader.wake()

    @staticmethod
    def _start_thread(work: Callable[[], None], name: str) -> None:
        threading.Thread(target=work, name=name, daemon=True).start()

    def _send(self, action: ev.SendMessage) -> None:
        data = dict(self._reporter.redact(clean_data(action.data)))
        if action.kind is MessageKind.EXITED:
            data.setdefault("seconds", self._user.ran.seconds)
            # Before the message, so that a successor reports the same exit, and reports it once.
            self._exit.write(ExitData(self._spool.last, data))
        elif action.kind is MessageKind.NOTICE:
            self._checkpoints.store_newest_only()
        self._reporter.send(action.kind, data)

    # 1. Stage

    def _stage(self) -> None:
        channel = self._new_channel()
        try:
            self._prepared = prepare(
                self._assignment_file, self._folder, channel, self._staging, self._machine.env, self._machine.has_gpus
            )
            self._redact(self._prepared.secrets)
            self._events.put(ev.StagingDone())
        except StagingError as error:
            self._log_line(str(error))
            self._events.put(ev.StagingFailed(str(error)))
        except Gone:
            self._contacts.release_attempt()
        except StagingAborted:
            pass
        finally:
            channel.close()

    def _redact(self, secrets: Collection[str]) -> None:
        """Mask these secrets in everything that is written or reported from now on."""
        if secrets:
            self._reporter.redactor = redactor = Redactor(secrets)
            self._monitor.redact(redactor)

    def _log_line(self, text: str) -> None:
        """Write a text of the agent, marked as such, into the job's log."""
        if self._reporter.redactor is not None:
            text = self._reporter.redactor.text(text)
        self._log.write([f"[crucible] {line}".encode("utf-8", "replace") for line in text.splitlines()])

    # 2. Start

    def _make_user_process(self) -> tuple[UserProcess, str]:
        """Fork the child that later becomes the user's process: only a process without threads can fork safely."""
        self._folder.clear_stage()
        confinement, limits = prepare_confinement(self._machine.limiter, self._assignment, self._folder.root)
        self._output, writing = make_pipe()
        user = UserProcess.prepare(confinement, writing, self._folder.process, self._job_variables())
        os.close(writing)  # else the pipe would stay open when the job's processes have ended
        return user, limits

    def _job_variables(self) -> Mapping[str, str]:
        """Return the variables by which every process of this attempt is found, whatever its process group."""
        return {"CRUCIBLE_ATTEMPT_ID": self._assignment.attempt, "CRUCIBLE_RANK": str(self._assignment.rank)}

    def _start_process(self) -> ev.Event:
        prepared = self._prepared
        assert prepared is not None
        try:
            self._user.start(prepared.command, prepared.folder, prepared.env)
        except CannotExecute as error:
            self._log_line(error.text)
            return ev.StartFailed(error.code, error.text)
        except OSError as error:
            return ev.StartFailed(126, f"the start of the job cannot be recorded: {error}; check the machine's disk")
        self._monitor.start(self._user, self._output, self._assignment.limits.gpus, self._uploader.wake)
        known: dict[str, object] = read_json(self._folder.runner) or {}
        job = {"pgid": self._user.pid, "process_start_time": self._user.process.start_time}
        write_json(self._folder.runner, {**known, **job})
        self._checkpoints.watch(lambda: self._user.process.alive)
        started = {
            "agent": __version__,
            "python": prepared.python,
            "command": list(prepared.command),
            "limits": self._limits,
            "environment": prepared.about,
            "packages": installed_packages(prepared.python),
            "python_version": python_version(prepared.python),
        }
        return ev.ProcessStarted(self._user.pid, tuple(started.items()))

    # 3. Watch

    def _job_context(self) -> JobContext | None:
        """Return what sessions need to know of the job; None while its program does not run."""
        prepared, user = self._prepared, self._user
        if prepared is None or user.confinement is None or not self._monitor.started or not user.process.alive:
            return None
        return JobContext(
            prepared.folder,
            prepared.env,
            prepared.secrets,
            user.confinement.admit,
            user.confinement.pids,
            lambda: user.process.alive,
        )

    # 5. Collect

    def _store_outputs(self) -> None:
        self._monitor.finish()
        self._collector.report_result()
        if self._spool.dropped:
            self._reporter.note(f"{self._spool.dropped} metric messages were dropped: too many were waiting to be sent")
        channel = self._new_channel()
        try:
            self._checkpoints.finish(self._exit.exit_data())
            complete, text = self._collector.store(channel)
            # Users who follow the log stop reading at ENDED, so all of the log must be stored before it.
            while not self._uploader.is_log_done:
                time.sleep(LAST_TURN_SECONDS)
            self._events.put(ev.OutputsStored(complete, text))
        except Gone:
            self._contacts.release_attempt()
        finally:
            channel.close()

    # 6. Finish

    def _is_finished(self) -> bool:
        if self._finish is None:
            return False
        return not self._finish.deliver or self._uploader.is_delivered

    def _leave(self) -> None:
        self._sessions.end()
        if self._user.launcher is not None and not self._folder.process.exists():
            self._user.abandon()  # the forked child still waits for its order
        self._user.remove_confinement()
        write_file(self._folder.done, b"", durable=True)
