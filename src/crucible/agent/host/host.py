"""The host: polls the machine's desired document and forks a runner for each assignment.

This is the shell around the reducer `host_state`. It has a single thread, so that forking is safe. Errors of the server
never end it; only an answer that the machine is not wanted does, or a long silence while it is idle.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import ssl
import time
from dataclasses import asdict
from pathlib import Path
from typing import Callable

from crucible import __version__
from crucible.agent.clock import Deadline, boottime
from crucible.agent.files import Lock, write_file, write_json
from crucible.agent.folder_watch import MachineFolderWatch
from crucible.agent.host import host_state as hs
from crucible.agent.host.runners import RunnerProcesses
from crucible.agent.link.backoff import Backoff
from crucible.agent.link.channel import ClaimedByAnother, MachineChannel
from crucible.agent.link.channels import open_machine_channel
from crucible.agent.link.connection import ChannelError, Gone, Refused, Unreachable
from crucible.agent.process.limits import LimitsProbe, choose_limiter
from crucible.agent.process.sampling import Probe, detect_devices
from crucible.agent.runner.runner import MachineFacts
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.documents.desired import Assignment
from crucible.wire.process import this_process

log = logging.getLogger(__name__)

WAIT_SECONDS = 25.0
TURN_SECONDS = 0.5


class MachineNotNeeded(Exception):
    """The control plane has no use for this machine, or another host has claimed it."""


def run_host(bootstrap: Bootstrap, after_fork: Callable[[], None] = lambda: None) -> None:
    """Run the host until it is no longer needed. Returns at once if the machine has a host already."""
    bootstrap.attempts.mkdir(parents=True, exist_ok=True)
    lock = Lock.take(bootstrap.work / "host.lock")
    if lock is None:
        log.info("exiting: this machine has a host already")
        return
    me = this_process()
    identity = {"pid": me.pid, "start_time": me.start_time, "native_id": bootstrap.native_id}
    write_json(bootstrap.work / "host.json", {**identity, "version": __version__})
    try:
        secret = claim(bootstrap, bootstrap.work / "secret")
    except MachineNotNeeded as reason:
        log.info("exiting: %s", reason)
        return
    devices = detect_devices(Probe())
    limiter = choose_limiter(LimitsProbe(folder=bootstrap.work / "limits"))
    machine = MachineFacts(limiter, dict(os.environ), bool(devices.gpus))
    runners = RunnerProcesses(bootstrap, machine, after_fork)
    Host(bootstrap, open_machine_channel(bootstrap, secret), runners, json.dumps(asdict(devices))).run()


def claim(bootstrap: Bootstrap, secret_file: Path, clock: Callable[[], float] = boottime) -> str:
    """Return the machine's secret, from an earlier claim or a new one. Raises MachineNotNeeded."""
    if secret_file.exists():
        return secret_file.read_text(encoding="utf-8").strip()
    channel = open_machine_channel(bootstrap, None)
    backoff, began = Backoff(), clock()
    while True:
        try:
            secret = channel.claim(bootstrap.nonce, bootstrap.native_id)
            write_file(secret_file, secret.encode(), durable=True)
            return secret
        except (ClaimedByAnother, Gone, Refused) as error:
            raise MachineNotNeeded(str(error)) from error
        except Unreachable as error:
            if clock() - began > bootstrap.idle_exit_seconds:
                raise MachineNotNeeded(f"the control plane does not respond: {error}") from error
        time.sleep(backoff.next())


class Host:
    """Keeps one long poll open, or waits to retry it, and notices ended runners meanwhile."""

    def __init__(self, bootstrap: Bootstrap, channel: MachineChannel, runners: RunnerProcesses, devices: str) -> None:
        self._channel = channel
        self._runners = runners
        self._devices: str | None = devices
        self._folder = MachineFolderWatch(bootstrap.work)
        self._state = hs.begin(bootstrap.idle_exit_seconds, boottime())
        self._lease: float | None = None
        self._deadline: Deadline | None = None
        self._version = 0
        self._backoff = Backoff()
        self._request_at = 0.0
        self._overdue_at: float | None = None
        """When the answer to the open request is overdue; None without an open request."""
        self._requested_at = boottime()
        self._last_error = ""
        self._quit = False
        self._wakeup = _wakeup_pipe()

    def run(self) -> None:
        for key, alive, done in self._runners.adopt():
            log.info("found %s: %s", key, "alive" if alive else "done" if done else "dead")
            self._step(hs.RunnerAdopted(*key, alive, done, boottime()))
        while not self._quit:
            self._turn()

    def _turn(self) -> None:
        if self._overdue_at is None and time.monotonic() >= self._request_at:
            self._request_desired()
        if self._wait():
            self._read_answer()
        for key, done in self._runners.ended():
            self._step(hs.RunnerEnded(*key, done, boottime()))
        self._step((hs.FolderLost if self._folder.is_lost() else hs.Tick)(boottime()))

    # Poll the desired document

    def _request_desired(self) -> None:
        self._requested_at = boottime()
        try:
            seconds = self._channel.ask(self._version, WAIT_SECONDS, self._devices)
            self._overdue_at = time.monotonic() + seconds
        except ChannelError as error:
            self._failed(error)

    def _wait(self) -> bool:
        """Wait a turn for the answer or the end of a child. Returns whether the answer is there, or overdue."""
        socket = self._channel.socket if self._overdue_at is not None else None
        if isinstance(socket, ssl.SSLSocket) and socket.pending():
            return True  # TLS has decrypted bytes that select does not see
        pause = TURN_SECONDS
        if self._overdue_at is None:
            pause = min(pause, max(0.0, self._request_at - time.monotonic()))
        watched = [self._wakeup] if socket is None else [self._wakeup, socket.fileno()]
        ready, _, _ = select.select(watched, [], [], pause)
        if self._wakeup in ready:
            os.read(self._wakeup, 4096)
        overdue = self._overdue_at is not None and time.monotonic() > self._overdue_at
        return overdue or (socket is not None and socket.fileno() in ready)

    def _read_answer(self) -> None:
        self._overdue_at = None
        try:
            desired = self._channel.answer()
        except Gone:
            self._step(hs.MachineReleased(boottime()))
            self._request_at = time.monotonic() + self._backoff.next()
            return
        except ChannelError as error:
            self._failed(error)
            return
        self._on_contact()
        if desired is None:
            self._step(hs.ContactMade(boottime()))
            return
        self._version, self._lease = desired.version, desired.lease_seconds
        self._deadline = Deadline.after(desired.ends_in, boottime())
        self._step(hs.DesiredReceived(desired, boottime()))

    def _on_contact(self) -> None:
        self._devices = None
        self._backoff.reset()
        if self._last_error:
            log.info("in contact again")
        self._last_error = ""

    def _failed(self, error: ChannelError) -> None:
        if str(error) != self._last_error:
            log.info("no contact: %s", error)
        self._last_error = str(error)
        self._request_at = time.monotonic() + self._backoff.next()
        self._step(hs.ContactLost(boottime(), self._requested_at))

    # Decide and act

    def _step(self, event: hs.Event) -> None:
        self._state, actions = hs.step(self._state, event)
        for action in actions:
            self._act(action)

    def _act(self, action: hs.Action) -> None:
        if isinstance(action, hs.ExitHost):
            log.info("exiting: %s", action.why)
            self._quit = True
        elif isinstance(action, hs.RemoveAttempt):
            self._runners.remove((action.attempt, action.rank))
        elif isinstance(action, hs.StartRunner):
            self._launch((action.assignment.attempt, action.assignment.rank), action.assignment)
        else:
            # If not even the assignment file could be written, the desired document still has the assignment.
            key = (action.attempt, action.rank)
            self._launch(key, (self._state.assignments or {}).get(key))

    def _launch(self, key: hs.Key, assignment: Assignment | None) -> None:
        log.info("starting a runner for %s", key)
        try:
            if assignment is None or self._runners.has_assignment(key):
                self._runners.fork(key)
            else:
                self._runners.start(assignment, self._lease, self._deadline)
        except (OSError, ValueError) as error:
            log.error("cannot start a runner for %s: %s", key, error)
            self._step(hs.RunnerEnded(*key, False, boottime()))


def _wakeup_pipe() -> int:
    """Return a descriptor that becomes readable when a child ends, so that `select` wakes up."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading
