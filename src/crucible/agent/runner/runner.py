"""A runner: one attempt on this machine, from staging to the last acknowledgement.

The shell round `runner_state`: it turns what happens into events and does what the reducer says. It needs
neither its host nor the control plane to go on.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Callable

from crucible import __version__
from crucible.agent.checkpoints import CheckpointCallbacks, CheckpointKeeper
from crucible.agent.clock import Deadline, boottime
from crucible.agent.files import read_json, write_file, write_json
from crucible.agent.host.bootstrap import AssignmentFile
from crucible.agent.host.interruption import start_interruption_watch
from crucible.agent.host.machine import MachineFacts
from crucible.agent.link.channel import Channel, DesiredAttempt, Gone
from crucible.agent.link.channels import runner_channel_factory, session_socket_factory
from crucible.agent.link.reporter import Reporter, clean_data
from crucible.agent.link.spool import Spool
from crucible.agent.link.uploader import Uploader
from crucible.agent.output.output_log import OutputLimits, OutputLog, last_announced
from crucible.agent.output.pump import make_pipe
from crucible.agent.output.redaction import Redactor
from crucible.agent.process.launcher import CannotExecute
from crucible.agent.process.signals import ProcessSignals
from crucible.agent.process.user_process import UserProcess, prepare_confinement
from crucible.agent.python.pythons import installed_packages, python_version
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


class Runner:
    """One runner's life. Everything that happens goes through `_events`; only `run` touches the state."""

    def __init__(self, order: AssignmentFile, folder: AttemptFolder, machine: MachineFacts) -> None:
        self._order = order
        self._assignment = order.assignment
        self._folder = folder
        self._machine = machine
        self._events: queue.Queue[rs.Event] = queue.Queue()
        self._new_channel = runner_channel_factory(order.bootstrap, order.assignment)
        self._spool = Spool(folder.spool)
        self._contacts = ContactTracker(lambda: self._events.put(rs.AttemptReleased()), order.lease_seconds)
        self._voice = Reporter(self._spool, self._wake)
        self._checkpoints = CheckpointKeeper(folder, self._channel(), self._telling())
        self._exit = ExitRecord(folder.exited)
        room = OutputLimits(self._assignment.limits.output_bytes)
        self._log = OutputLog(folder.output_log, self._voice.note, room, last_announced(self._spool.all_messages()))
        self._monitor = Monitor(folder.report, self._log, self._voice, self._checkpoints.add_note)
        self._collector = OutputCollector(folder, self._assignment.rank, self._voice)
        self._courier = Uploader(self._channel(), self._spool, self._log, self._contacts)
        self._stage = StagingContext(self._voice.staging, self._log_line, self._voice.note)
        self._prepared: PreparedJob | None = None
        self._finishing: rs.Finish | None = None
        self._user, self._limits = self._make_user()
        self._prompting = ProcessSignals(folder, self._user)
        self._sessions = SessionManager(session_socket_factory(order.bootstrap, order.assignment), self._surroundings)

    def run(self) -> None:
        """Returns once everything is acknowledged, or nothing is wanted any more."""
        self._courier.start()
        state, actions = self._begin()
        known = DesiredAttempt(self._assignment.stop, self._assignment.checkpoint)
        DesiredPoller(self._channel(), self._contacts, self._heard, known).start()
        start_interruption_watch(
            self._order.bootstrap.interruption_url, lambda seconds: self._events.put(rs.InterruptionNoticed(seconds))
        )
        state = self._do(state, actions)
        while not self._may_leave():
            for event in self._next_events():
                state = self._do(*rs.step(state, event))
            self._housekeep(state)
        self._leave()

    def _begin(self) -> rs.Step:
        self._voice.staging("preparing")
        a, order = self._assignment, self._order
        state, actions = rs.begin(a.grace, a.limits.seconds, boottime(), order.deadline, a.checkpoint)
        if a.stop:
            self._events.put(rs.StopRequested())
        return state, actions

    # Events

    def _next_events(self) -> tuple[rs.Event, ...]:
        try:
            first = self._events.get(timeout=LAST_TURN_SECONDS if self._finishing else TURN_SECONDS)
        except queue.Empty:
            return (rs.Tick(boottime()),)
        if isinstance(first, rs.ProcessEnded):
            first = replace(first, by_itself=self._prompting.ended_first)
        return (rs.Tick(boottime()), first)

    def _heard(self, wish: DesiredAttempt) -> None:
        if wish.stop:
            self._events.put(rs.StopRequested())
        if wish.lease is not None:
            self._contacts.set_lease(wish.lease.seconds)
        if wish.ends_in is not None:
            self._events.put(rs.DeadlineChanged(Deadline.after(wish.ends_in.seconds, boottime())))
        self._events.put(rs.CheckpointRequested(wish.checkpoint))
        self._sessions.start_sessions(wish.sessions)

    def _surroundings(self) -> JobContext | None:
        """What sessions find at the job; None while its program does not run."""
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

    def _may_leave(self) -> bool:
        if self._finishing is None:
            return False
        return not self._finishing.deliver or self._courier.is_delivered

    def _housekeep(self, state: rs.RunnerState) -> None:
        if self._contacts.has_lease_expired():
            self._events.put(rs.LeaseExpired())
        self._log.cut_if_due()
        if state.phase is rs.Phase.RUNNING:
            self._monitor.tick()

    # Actions

    def _do(self, state: rs.RunnerState, actions: rs.Actions) -> rs.RunnerState:
        for action in actions:
            self._act(action)
        return state

    def _act(self, action: rs.Action) -> None:
        if isinstance(action, rs.SendMessage):
            self._say(action)
        elif isinstance(action, rs.StartStaging):
            self._start(self._prepare, "stage")
        elif isinstance(action, rs.AbortStaging):
            self._stage.aborted.set()
        elif isinstance(action, rs.StartProcess):
            self._events.put(self._spawn())
            if self._monitor.started:
                # Only now: the end of a short process must not come before its beginning.
                self._start(lambda: self._events.put(self._user.wait()), "wait")
        elif isinstance(action, rs.SendSignal):
            self._prompting.send_signal(action.number)
        elif isinstance(action, rs.WriteStopFile):
            self._prompting.write_stop_file()
        elif isinstance(action, rs.RequestCheckpoint):
            self._prompting.request_checkpoint(self._prepared.env if self._prepared is not None else {})
        elif isinstance(action, rs.StoreOutputs):
            self._start(self._store_outputs, "outputs")
        else:
            self._finishing = action

    def _say(self, action: rs.SendMessage) -> None:
        data = dict(self._voice.redact(clean_data(action.data)))
        if action.kind is MessageKind.EXITED:
            data.setdefault("seconds", self._user.ran.seconds)
            self._exit.write(ExitData(self._spool.last, data))
        elif action.kind is MessageKind.NOTICE:
            self._checkpoints.expire_grace()
        self._voice.send(action.kind, data)

    def _prepare(self) -> None:
        channel = self._channel()
        try:
            self._prepared = prepare(
                self._order, self._folder, channel, self._stage, self._machine.env, self._machine.has_gpus
            )
            self._hide(self._prepared.secrets)
            self._events.put(rs.StagingDone())
        except StagingError as error:
            self._log_line(str(error))
            self._events.put(rs.StagingFailed(str(error)))
        except Gone:
            self._contacts.release_attempt()
        except StagingAborted:
            pass
        finally:
            channel.close()

    def _hide(self, secrets: Collection[str]) -> None:
        """From now on none of them is written or told; without any nothing is looked at."""
        if secrets:
            self._voice.redactor = redactor = Redactor(secrets)
            self._monitor.redact(redactor)

    def _spawn(self) -> rs.Event:
        prepared = self._prepared
        assert prepared is not None
        try:
            self._user.start(prepared.command, prepared.folder, prepared.env)
        except CannotExecute as error:
            self._log_line(error.text)
            return rs.StartFailed(error.code, error.text)
        except OSError as error:
            return rs.StartFailed(126, f"the start of the job cannot be written down: {error}")
        self._start_watching()
        said = {
            "agent": __version__,
            "python": prepared.python,
            "command": list(prepared.command),
            "limits": self._limits,
            "environment": prepared.about,
            "packages": installed_packages(prepared.python),
            "python_version": python_version(prepared.python),
        }
        return rs.ProcessStarted(self._user.pid, tuple(said.items()))

    def _start_watching(self) -> None:
        self._monitor.start(self._user, self._reading, self._assignment.limits.gpus, self._courier.wake)
        known: dict[str, object] = read_json(self._folder.runner) or {}
        job = {"pgid": self._user.pid, "process_start_time": self._user.process.start_time}
        write_json(self._folder.runner, {**known, **job})
        self._checkpoints.watch(lambda: self._user.process.alive)

    def _store_outputs(self) -> None:
        self._monitor.finish()
        self._collector.report(self._prepared.baseline if self._prepared is not None else None)
        if self._spool.dropped:
            self._voice.note(f"{self._spool.dropped} metric messages were thinned out: too much was unsent")
        channel = self._channel()
        try:
            self._checkpoints.finish(self._exit.exit_data())
            complete, text = self._collector.store(channel)
            # Who hears that the attempt has ended reads its log to the end: nothing of it comes later.
            while not self._courier.is_log_done:
                time.sleep(LAST_TURN_SECONDS)
            self._events.put(rs.OutputsStored(complete, text))
        except Gone:
            self._contacts.release_attempt()
        finally:
            channel.close()

    def _telling(self) -> CheckpointCallbacks:
        return CheckpointCallbacks(
            announce=lambda data: self._voice.send(MessageKind.CHECKPOINT, data),
            note=self._voice.note,
            gone=self._contacts.release_attempt,
        )

    def _leave(self) -> None:
        self._sessions.end()
        if self._user.launcher is not None and not self._folder.process.exists():
            self._user.abandon()
        self._user.remove_confinement()
        write_file(self._folder.done, b"", durable=True)

    # Parts

    def _make_user(self) -> tuple[UserProcess, str]:
        """The process that will become the user's, forked while this one has no threads."""
        self._folder.clear_stage()
        confinement, limits = prepare_confinement(self._machine.limiter, self._assignment, self._folder.root)
        self._reading, writing = make_pipe()
        user = UserProcess.prepare(confinement, writing, self._folder.process, self._marks())
        os.close(writing)
        return user, limits

    def _marks(self) -> Mapping[str, str]:
        return {"CRUCIBLE_ATTEMPT_ID": self._assignment.attempt, "CRUCIBLE_RANK": str(self._assignment.rank)}

    def _channel(self) -> Channel:
        return self._new_channel()

    def _log_line(self, text: str) -> None:
        if self._voice.redactor is not None:
            text = self._voice.redactor.text(text)
        self._log.write([f"[crucible] {line}".encode("utf-8", "replace") for line in text.splitlines()])

    def _wake(self) -> None:
        self._courier.wake()

    @staticmethod
    def _start(work: Callable[[], None], name: str) -> None:
        threading.Thread(target=work, name=name, daemon=True).start()
