"""One party of a mailbox, a host or a runner: its heartbeats, and the documents of the control plane to it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Callable

from crucible.agent.link.connection import Unreachable
from crucible.agent.storelink.mailbox import Mailbox
from crucible.agent.storelink.urls import SignedUrls
from crucible.wire.documents.crypto import BadDocument, NoCryptography
from crucible.wire.documents.mailbox import (
    MAX_DOCUMENT,
    MAX_OUTSTANDING,
    MAX_WANTS,
    ControlDocument,
    Heartbeat,
    control_document_name,
    decode_control_document,
    encode_heartbeat,
    heartbeat_name,
    new_incarnation,
    segment_name,
)

BEAT_SECONDS = 10.0
SOON_SECONDS = 1.0
"""Seconds between heartbeats when there are new requests."""
QUIET_SECONDS = 30.0
"""Without an echo for this long, the control plane counts as unreachable."""


class MailboxClient:
    """Usable from any thread. Only an echo of its own heartbeat counts as contact."""

    def __init__(
        self,
        mail: Mailbox,
        name: str,
        key: bytes,
        urls: SignedUrls | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.mail = mail
        self.name = name
        self.urls = urls
        self._key = key
        self._clock = clock
        self._life = new_incarnation()
        self._lock = threading.Lock()
        self._count = 0
        self._beat_at = 0.0
        self._asked: tuple[str, ...] = ()
        self._also: tuple[str, ...] = ()
        self._down: ControlDocument | None = None
        self._heard_at = clock()
        self._segments = 0
        self._sent: deque[int] = deque()

    @property
    def in_touch(self) -> bool:
        """Whether there was a recent echo, or it is too early for one."""
        return self._clock() - self._heard_at <= QUIET_SECONDS

    def send_heartbeat(self, devices: str | None = None) -> None:
        """Send a heartbeat if one is due."""
        with self._lock:
            wants = (*self._also, *(self.urls.wanted() if self.urls is not None else ()))[:MAX_WANTS]
            since = self._clock() - self._beat_at
            soon = wants != self._asked and since >= SOON_SECONDS
            if self._count and since < BEAT_SECONDS and not soon:
                return
            alive = Heartbeat(self._life, self._count + 1, wants, devices)
            with unreachable_without_cryptography():
                raw = encode_heartbeat(self._key, self.name, alive, encrypted=not self.mail.is_private)
            self.mail.put(heartbeat_name(self.name), raw, len(raw))
            self._count, self._beat_at, self._asked = alive.count, self._clock(), wants

    def want(self, *also: str) -> None:
        """Set what the next heartbeats request in addition to URLs (an empty request ends it)."""
        with self._lock:
            self._also = also

    def fetch_document(self) -> ControlDocument | None:
        """Return the newest document for this process; None before the first one."""
        raw = self.mail.get(control_document_name(self.name), MAX_DOCUMENT)
        with self._lock:
            if raw is not None:
                self._hear(raw)
            return self._down

    def _hear(self, raw: bytes) -> None:
        try:
            with unreachable_without_cryptography():
                down = decode_control_document(self._key, self.name, raw)
        except BadDocument:
            return
        before = self._down
        if down.life != self._life or (before is not None and down.number <= before.number):
            return
        self._down = down
        if before is None or down.count > before.count:
            self._heard_at = self._clock()
        if self.urls is not None:
            self.urls.learn(down.urls)
        acked = down.body.get("acked")
        while self._sent and isinstance(acked, int) and self._sent[0] <= acked:
            self._sent.popleft()

    def next_segment(self) -> str:
        """Return a name that was never used. Raises Unreachable while too many segments are unread."""
        if len(self._sent) >= MAX_OUTSTANDING:
            self.fetch_document()
        with self._lock:
            if len(self._sent) >= MAX_OUTSTANDING:
                raise Unreachable(f"the control plane has not read {len(self._sent)} batches yet")
            self._segments += 1
            self._ask_ahead()
            return segment_name(self.name, self._life, self._segments)

    def sent(self, last: int) -> None:
        """Record that a segment with messages up to `last` is in the store."""
        with self._lock:
            self._sent.append(last)

    def _ask_ahead(self) -> None:
        """Request URLs for the next segments, so that batches can be stored while the control plane is unreachable."""
        if self.urls is not None:
            for n in range(self._segments, self._segments + MAX_OUTSTANDING // 4):
                self.urls.want("PUT", segment_name(self.name, self._life, n))


@contextlib.contextmanager
def unreachable_without_cryptography() -> Iterator[None]:
    """Raise Unreachable if the encryption package is missing, so that messages wait until it is installed."""
    try:
        yield
    except NoCryptography as error:
        raise Unreachable(str(error)) from error
