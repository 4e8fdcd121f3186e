"""Signed URLs, by which an agent without credentials reads and writes single objects of a bucket."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from crucible.agent.link.connection import Unreachable
from crucible.wire.documents.mailbox import MAX_WANTS

WAIT_SECONDS = 20.0


class SignedUrls:
    """Usable from any thread. Missing URLs are requested in the next heartbeat."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = dict(known)
        self._wanted: dict[str, None] = {}
        self._changed = threading.Condition()

    def learn(self, urls: Mapping[str, str]) -> None:
        with self._changed:
            self._known.update(urls)
            for want in urls:
                self._wanted.pop(want, None)
            self._changed.notify_all()

    def want(self, method: str, name: str) -> None:
        """Request a URL to use later."""
        with self._changed:
            self._want(f"{method} {name}")

    def refuse(self, method: str, name: str) -> None:
        """Drop a URL that was refused (it has expired), and request another."""
        with self._changed:
            self._known.pop(f"{method} {name}", None)
            self._want(f"{method} {name}")

    def forget(self, method: str, name: str) -> None:
        """Drop a URL that will not be used again."""
        with self._changed:
            self._known.pop(f"{method} {name}", None)
            self._wanted.pop(f"{method} {name}", None)

    def wanted(self) -> tuple[str, ...]:
        """Return the URLs to request, at most MAX_WANTS."""
        with self._changed:
            return tuple(self._wanted)[:MAX_WANTS]

    def wait_for(self, method: str, name: str, wait: float = WAIT_SECONDS) -> str:
        """Return the URL once it is known. Raises Unreachable after `wait` seconds."""
        want = f"{method} {name}"
        with self._changed:
            if want not in self._known:
                self._want(want)
            if not self._changed.wait_for(lambda: want in self._known, wait):
                raise Unreachable(f"no URL for {want} yet")
            return self._known[want]

    def _want(self, want: str) -> None:
        if want not in self._known:
            self._wanted[want] = None
