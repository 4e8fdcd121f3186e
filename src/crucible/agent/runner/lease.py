"""Polls the desired state of an attempt, and notices when the lease has expired without contact."""

from __future__ import annotations

import logging
import threading
from typing import Callable

from crucible.agent.clock import Silence, boottime
from crucible.agent.link.backoff import Backoff
from crucible.agent.link.channel import Channel, DesiredAttempt
from crucible.agent.link.connection import ChannelError, Gone

log = logging.getLogger(__name__)

WAIT_SECONDS = 25.0


class ContactTracker:
    """Tracks contact over all connections of a runner, and compares the silence with the lease.

    `lease_seconds`: how long the job may run without contact; None for no limit. `release` is called when the control
    plane no longer wants the attempt.
    """

    def __init__(
        self, release: Callable[[], None], lease_seconds: float | None = None, clock: Callable[[], float] = boottime
    ) -> None:
        self._release = release
        self._clock = clock
        self._lock = threading.Lock()
        self._lease_seconds = lease_seconds
        self._silence = Silence.begin(clock())
        self._trouble = ""

    def now(self) -> float:
        """Return the time; take it before a request, for `failed`."""
        return self._clock()

    def succeeded(self) -> None:
        with self._lock:
            self._silence = self._silence.contacted(self._clock())
            if self._trouble:
                log.info("in contact again")
            self._trouble = ""

    def failed(self, why: str, began: float) -> None:
        """Record that a request failed, which began at `began`."""
        with self._lock:
            self._silence = self._silence.failed(self._clock(), began)
            if why != self._trouble:
                log.info("no contact: %s", why)
            self._trouble = why

    def release_attempt(self) -> None:
        self._release()

    def set_lease(self, seconds: float | None) -> None:
        """Change the lease."""
        with self._lock:
            self._lease_seconds = seconds

    def has_lease_expired(self) -> bool:
        """Return whether the silence has outlasted the lease. Call it at least every few seconds."""
        with self._lock:
            self._silence = self._silence.tick(self._clock())
            return self._lease_seconds is not None and self._silence.has_lasted(self._lease_seconds)


class DesiredPoller(threading.Thread):
    """Long-polls the desired state of the attempt; calls `on_desired` with each change."""

    def __init__(
        self,
        channel: Channel,
        contacts: ContactTracker,
        on_desired: Callable[[DesiredAttempt], None],
        known: DesiredAttempt,
    ) -> None:
        super().__init__(name="desired", daemon=True)
        self._channel = channel
        self._contacts = contacts
        self._on_desired = on_desired
        self._known = known
        self._ending = threading.Event()

    def end(self) -> None:
        self._ending.set()

    def run(self) -> None:
        backoff = Backoff()
        while not self._ending.is_set():
            began = self._contacts.now()
            try:
                desired = self._channel.desired(self._known, WAIT_SECONDS)
            except Gone:
                self._contacts.release_attempt()
                return
            except ChannelError as error:
                self._contacts.failed(str(error), began)
                self._ending.wait(backoff.next())
                continue
            backoff.reset()
            self._contacts.succeeded()
            if desired is not None and self._handle(desired):
                return
            if desired is not None and desired == self._known:
                self._ending.wait(1.0)  # a server that repeats itself must not be polled in a tight loop
            self._known = desired or self._known

    def _handle(self, desired: DesiredAttempt) -> bool:
        if desired.settled:
            self._contacts.release_attempt()
            return True
        self._on_desired(desired)
        return False
