"""A runner's ear: hears what is wanted of its attempt, and notices when nobody speaks."""

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
    """Counts the silence over all of a runner's connections, and holds it against the lease.

    `lease_seconds` is the right to run without contact; None: for ever.
    """

    def __init__(
        self, gone: Callable[[], None], lease_seconds: float | None = None, clock: Callable[[], float] = boottime
    ) -> None:
        self._gone = gone
        self._clock = clock
        self._lock = threading.Lock()
        self._lease_seconds = lease_seconds
        self._silence = Silence.begin(clock())
        self._trouble = ""

    def now(self) -> float:
        """For `failed`: ask it before a contact is tried."""
        return self._clock()

    def succeeded(self) -> None:
        with self._lock:
            self._silence = self._silence.contacted(self._clock())
            if self._trouble:
                log.info("in contact again")
            self._trouble = ""

    def failed(self, why: str, began: float) -> None:
        """A contact that was tried from `began` on was not made."""
        with self._lock:
            self._silence = self._silence.failed(self._clock(), began)
            if why != self._trouble:
                log.info("no contact: %s", why)
            self._trouble = why

    def release_attempt(self) -> None:
        self._gone()

    def set_lease(self, seconds: float | None) -> None:
        """The lease is another from now on."""
        with self._lock:
            self._lease_seconds = seconds

    def has_lease_expired(self) -> bool:
        """Whether the silence has outlasted the lease; to be asked at least every few seconds."""
        with self._lock:
            self._silence = self._silence.tick(self._clock())
            return self._lease_seconds is not None and self._silence.has_lasted(self._lease_seconds)


class DesiredPoller(threading.Thread):
    """Asks again and again what is wanted of the attempt; tells every answer that says something."""

    def __init__(
        self, channel: Channel, contacts: ContactTracker, heard: Callable[[DesiredAttempt], None], known: DesiredAttempt
    ) -> None:
        super().__init__(name="listener", daemon=True)
        self._channel = channel
        self._contacts = contacts
        self._heard = heard
        self._known = known
        self._ending = threading.Event()

    def end(self) -> None:
        self._ending.set()

    def run(self) -> None:
        backoff = Backoff()
        while not self._ending.is_set():
            began = self._contacts.now()
            try:
                wish = self._channel.desired(self._known, WAIT_SECONDS)
            except Gone:
                self._contacts.release_attempt()
                return
            except ChannelError as error:
                self._contacts.failed(str(error), began)
                self._ending.wait(backoff.next())
                continue
            backoff.reset()
            self._contacts.succeeded()
            if wish is not None and self._hear(wish):
                return
            if wish is not None and wish == self._known:
                self._ending.wait(1.0)  # the other side repeats itself
            self._known = wish or self._known

    def _hear(self, wish: DesiredAttempt) -> bool:
        if wish.settled:
            self._contacts.release_attempt()
            return True
        self._heard(wish)
        return False
