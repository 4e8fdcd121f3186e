"""A runner's ear: hears what is wanted of its attempt, and notices when nobody speaks."""

from __future__ import annotations

import logging
import threading
from typing import Callable

from crucible.agent.backoff import Backoff
from crucible.agent.channel import AttemptWish, Channel, Gone, LinkError
from crucible.agent.clock import Silence, boottime

log = logging.getLogger(__name__)

WAIT_SECONDS = 25.0


class Contacts:
    """Counts the silence over all of a runner's connections."""

    def __init__(self, gone: Callable[[], None], clock: Callable[[], float] = boottime) -> None:
        self._gone = gone
        self._clock = clock
        self._lock = threading.Lock()
        self._silence = Silence.begin(clock())
        self._trouble = ""

    def made(self) -> None:
        with self._lock:
            self._silence = self._silence.made(self._clock())
            if self._trouble:
                log.info("in contact again")
            self._trouble = ""

    def failed(self, why: str) -> None:
        with self._lock:
            self._silence = self._silence.failed(self._clock())
            if why != self._trouble:
                log.info("no contact: %s", why)
            self._trouble = why

    def gone(self) -> None:
        self._gone()

    def silent_for(self, seconds: float) -> bool:
        """Whether the silence has lasted so long; to be asked at least every few seconds."""
        with self._lock:
            self._silence = self._silence.tick(self._clock())
            return self._silence.lasts(seconds)


class Listener(threading.Thread):
    """Asks again and again what is wanted of the attempt; tells of a stop once."""

    def __init__(self, channel: Channel, contacts: Contacts, stop_wanted: Callable[[], None], stop: bool) -> None:
        super().__init__(name="listener", daemon=True)
        self._channel = channel
        self._contacts = contacts
        self._stop_wanted = stop_wanted
        self._known = AttemptWish(stop)
        self._ending = threading.Event()

    def end(self) -> None:
        self._ending.set()

    def run(self) -> None:
        backoff = Backoff()
        while not self._ending.is_set():
            try:
                wish = self._channel.desired(self._known, WAIT_SECONDS)
            except Gone:
                self._contacts.gone()
                return
            except LinkError as error:
                self._contacts.failed(str(error))
                self._ending.wait(backoff.next())
                continue
            backoff.reset()
            self._contacts.made()
            if wish is not None and self._hear(wish):
                return
            if wish is not None and wish == self._known:
                self._ending.wait(1.0)  # the other side repeats itself
            self._known = wish or self._known

    def _hear(self, wish: AttemptWish) -> bool:
        if wish.settled:
            self._contacts.gone()
            return True
        if wish.stop and not self._known.stop:
            self._stop_wanted()
        return False
