"""Upload everything that a runner has on disk, log segments and messages, retrying forever.

Messages go in the order of the spool. A log segment is stored before the message that announces it.
"""

from __future__ import annotations

import contextlib
import threading
import time

from crucible.agent.link.backoff import Backoff
from crucible.agent.link.channel import Channel, Gap, LogSegment, log_message_data
from crucible.agent.link.connection import ChannelError, Gone, Refused
from crucible.agent.link.spool import Spool
from crucible.agent.output.output_log import OutputLog
from crucible.agent.runner.lease import ContactTracker
from crucible.wire.documents.messages import MessageKind

TAIL_EVERY = 0.25


class Uploader(threading.Thread):
    """The thread that uploads. Call `wake` after writing something; `stop` ends it, even with data left."""

    def __init__(self, channel: Channel, spool: Spool, log: OutputLog, contacts: ContactTracker) -> None:
        super().__init__(name="uploader", daemon=True)
        self._channel = channel
        self._spool = spool
        self._log = log
        self._contacts = contacts
        self._backoff = Backoff()
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._tail_at = 0.0
        self._last_gap: int | None = None
        self._log_refused = False

    def wake(self) -> None:
        self._wanted.set()

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()

    @property
    def is_delivered(self) -> bool:
        return self._log.is_sent and self._spool.is_delivered

    @property
    def is_log_done(self) -> bool:
        """Whether all output so far has been announced, or the server refuses it."""
        return self._log_refused or self._log.is_sent

    def run(self) -> None:
        while not self._stopping.is_set():
            self._wanted.clear()
            began = self._contacts.now()
            try:
                if not self._round():
                    self._wanted.wait(TAIL_EVERY)
            except Gone:
                self._contacts.release_attempt()
                break
            except (ChannelError, OSError) as error:  # OSError: our own disk is full
                self._contacts.failed(str(error), began)
                # A plain wait, not for `wake`: a chatty job must not turn retries into a storm.
                self._stopping.wait(self._backoff.next())
        self._channel.close()

    def _round(self) -> bool:
        """Send a segment, a batch of messages and the tail. Returns whether there may be more."""
        refused: Refused | None = None
        sent = False
        try:
            sent = self._send_segment()
            self._log_refused = False
        except Refused as error:
            self._log_refused = True
            refused = error  # messages do not wait behind a segment that the server refuses
        sent = self._send_messages() or sent
        self._send_tail()
        if refused is not None:
            raise refused
        return sent

    def _on_success(self) -> None:
        self._backoff.reset()
        if self._channel.is_direct:
            self._contacts.succeeded()

    def _send_segment(self) -> bool:
        segment = self._log.unsent()
        if segment is None:
            return False
        sha256 = self._channel.put_log(segment)
        self._on_success()
        self._announce(segment, sha256)
        return True

    def _announce(self, segment: LogSegment, sha256: str) -> None:
        self._spool.append(MessageKind.LOG, dict(log_message_data(segment, sha256)))
        self._log.remove_segment(segment)

    def _send_messages(self) -> bool:
        messages = self._spool.unsent()
        if not messages:
            return False
        try:
            acked = self._channel.send(messages)
        except Gap as gap:
            if gap.acked == self._last_gap:  # sending again from there has not helped
                raise
            acked = self._last_gap = gap.acked
        self._on_success()
        self._spool.acknowledge(acked)
        return True

    def _send_tail(self) -> None:
        if time.monotonic() - self._tail_at < TAIL_EVERY:
            return
        tail = self._log.tail()
        if tail is None:
            return
        self._tail_at = time.monotonic()
        with contextlib.suppress(Refused):  # the tail is only a preview: a segment delivers the same output
            self._channel.put_tail(*tail)
