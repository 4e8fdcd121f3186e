"""Upload checkpoints in the background: one at a time, retrying forever, announced once they are stored.

The program never waits for it. At most one copy is on disk at a time.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from crucible.agent.checkpoints.snapshot import Changed, CheckpointCopy, Snapshotter, Torn
from crucible.agent.checkpoints.upload_queue import Candidate, Mode, UploadQueue
from crucible.agent.checkpoints.watch import WholeEntry, WholeReason
from crucible.agent.files import read_json, write_json
from crucible.agent.link.backoff import Backoff
from crucible.agent.link.channel import Channel, NoRoom
from crucible.agent.link.connection import ChannelError, Gone, Refused, Unreachable

log = logging.getLogger(__name__)

NOTE_AFTER = 20
"""Failed uploads, about a minute of them, before the user gets a note."""
FULL_DISK_TRIES = 20
"""Attempts after the program has ended. While it runs there is no limit, because it may still free space."""
MAX_NOTES = 100
NICE = 5
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_RETRIED = (401, 422)
"""401: the server does not know the secret yet. 422: the bytes did not have the announced hash."""


@dataclass(frozen=True)
class CheckpointCallbacks:
    """`announce` reports a stored checkpoint, `note` adds a note to the job, `release` reports an unwanted attempt."""

    announce: Callable[[Mapping[str, object]], None]
    note: Callable[[str], None]
    release: Callable[[], None]


@dataclass
class UploadRecord:
    """The announced checkpoints of an attempt, on disk for a later runner. `hashes` has the last one of each name.

    `before_ns` is when the newest checkpoint that an earlier runner announced was written. Older ones that it skipped
    must not be announced after it, because jobs resume from the last announced.
    """

    path: Path
    hashes: dict[str, str] = field(default_factory=dict)
    before_ns: int = 0

    @classmethod
    def read(cls, path: Path) -> UploadRecord:
        doc = read_json(path) or {}
        hashes, newest = doc.get("hashes"), doc.get("newest_ns")
        known = {str(name): str(sha) for name, sha in hashes.items()} if isinstance(hashes, dict) else {}
        return cls(path, known, newest if isinstance(newest, int) else 0)

    def overtakes(self, whole: WholeEntry) -> bool:
        return whole.entry.newest_ns < self.before_ns

    def add(self, candidate: Candidate, sha256: str) -> None:
        """Add an announced checkpoint. If the file cannot be written, a later runner announces it again: harmless."""
        self.hashes[candidate.name] = sha256
        try:
            write_json(self.path, {"hashes": dict(self.hashes), "newest_ns": candidate.entry.newest_ns})
        except OSError as error:
            log.warning("cannot record which checkpoints are stored: %s", error)


class CheckpointUploader(threading.Thread):
    """The upload thread. `record` is the file of announced checkpoints, for this runner and a later one."""

    def __init__(self, channel: Channel, photographer: Snapshotter, record: Path, tell: CheckpointCallbacks) -> None:
        super().__init__(name="checkpoints", daemon=True)
        self._channel = channel
        self._photographer = photographer
        self._record = UploadRecord.read(record)
        self._tell = tell
        self._changed = threading.Condition()
        self._waiting = UploadQueue()
        self._mode = Mode.RUNNING
        self._finishing = False
        self._unwanted = False
        self._backoff = Backoff()
        self._tries = 0
        self._torn: dict[str, str] = {}
        self._noted: set[str] = set()

    @property
    def stored(self) -> frozenset[str]:
        """Names that were announced, whatever their content is now."""
        return frozenset(self._record.hashes)

    def offer(self, whole: WholeEntry) -> None:
        if self._record.overtakes(whole):
            return
        with self._changed:
            self._waiting = self._waiting.offer(whole)
            self._changed.notify_all()

    def store_newest_only(self) -> None:
        """Upload only the newest from now on: there is little time left."""
        with self._changed:
            self._mode = Mode.HURRY

    def finish(self, *, hurry: bool) -> None:
        """Wait until every offered checkpoint is stored, or cannot be. Raises Gone.

        Call it when nothing writes to the files any more.
        """
        with self._changed:
            self._mode = Mode.HURRY if hurry or self._mode is Mode.HURRY else Mode.ENDED
            self._finishing = True
            self._changed.notify_all()
        if self.ident is None:
            if not self._waiting.candidates:
                return
            self.start()
        self.join()
        if self._unwanted:
            raise Gone("the attempt is no longer wanted")

    def run(self) -> None:
        _be_nice()
        try:
            with contextlib.suppress(OSError):
                self._photographer.clear()
            candidate = self._next()
            while candidate is not None:
                self._store(candidate)
                candidate = self._next()
            for name, why in self._torn.items():
                self._note(f"the checkpoint {name!a} was not stored: {why}")
        except Gone:
            self._unwanted = True
            self._tell.release()
        finally:
            self._channel.close()

    def _next(self) -> Candidate | None:
        """Wait for the next checkpoint to store, and return it; None if no more will come."""
        with self._changed:
            while True:
                candidate = self._waiting.next(self._mode)
                if candidate is not None or self._finishing:
                    return candidate
                self._changed.wait()

    def _store(self, candidate: Candidate) -> None:
        try:
            snapshot = self._take(candidate)
        except Changed:
            self._forget(candidate)
        except Torn as error:
            self._torn[candidate.name] = str(error)  # the program may still complete it
            self._forget(candidate)
        except OSError as error:
            self._no_snapshot(candidate, error)
        else:
            self._upload(candidate, snapshot)

    def _upload(self, candidate: Candidate, snapshot: CheckpointCopy) -> None:
        self._torn.pop(candidate.name, None)
        try:
            known = self._record.hashes.get(candidate.name) == snapshot.sha256
            if not known and self._send(candidate, snapshot):
                self._announce(candidate, snapshot)
                known = True
        finally:
            snapshot.remove()
        if known:
            with self._changed:
                self._waiting = self._waiting.stored(candidate)

    def _take(self, candidate: Candidate) -> CheckpointCopy:
        noted = candidate.how is WholeReason.NOTED
        return self._photographer.take(candidate.entry, verify=not noted, copy=not self._finishing)

    def _send(self, candidate: Candidate, snapshot: CheckpointCopy) -> bool:
        """Upload, with retries. Return False if it was not stored: another one is due first, or it cannot be stored."""
        while True:
            try:
                with open(snapshot.path, "rb") as content:
                    self._channel.put_checkpoint(snapshot.sha256, content, snapshot.size)
                self._backoff.reset()
                self._tries = 0
                return True
            except Unreachable as error:
                self._later(candidate, error)
            except Refused as error:
                if error.status not in _RETRIED:
                    self._leave_out(candidate, str(error))
                    return False
                self._later(candidate, error)
                if error.status == 422:
                    return False  # retried with a new snapshot
            except OSError as error:
                self._leave_out(candidate, error.strerror or "it cannot be read")
                return False
            if self._next() != candidate:
                return False

    def _announce(self, candidate: Candidate, snapshot: CheckpointCopy) -> None:
        self._tell.announce(
            {
                "name": candidate.name,
                "form": "folder" if candidate.entry.is_folder else "file",
                "size": snapshot.size,
                "sha256": snapshot.sha256,
                "step": candidate.step,
                "metric": candidate.metric,
            }
        )
        self._record.add(candidate, snapshot.sha256)

    def _forget(self, candidate: Candidate) -> None:
        with self._changed:
            self._waiting = self._waiting.without(candidate)

    def _leave_out(self, candidate: Candidate, why: str) -> None:
        self._forget(candidate)
        self._note(f"the checkpoint {candidate.name!a} was not stored: {why}")

    def _no_snapshot(self, candidate: Candidate, error: OSError) -> None:
        may_retry = not self._finishing or self._tries < FULL_DISK_TRIES
        if error.errno not in _NO_ROOM or not may_retry:
            self._tries = 0
            self._leave_out(candidate, error.strerror or "it cannot be read")
        else:
            self._later(candidate, NoRoom("the disk of the machine is full"))

    def _later(self, candidate: Candidate, error: ChannelError) -> None:
        self._tries += 1
        if isinstance(error, NoRoom) or self._tries == NOTE_AFTER:
            self._note(f"the checkpoint {candidate.name!a} is not stored yet: {error}; retrying until it is")
        with self._changed:
            # A newer checkpoint does not shorten the wait, but the end of the program does, once.
            finishing = self._finishing
            self._changed.wait_for(lambda: self._finishing and not finishing, self._backoff.next())

    def _note(self, text: str) -> None:
        if text not in self._noted and len(self._noted) < MAX_NOTES:
            self._noted.add(text)
            self._tell.note(text)


def _be_nice() -> None:
    """Lower this thread's priority, on Linux only: elsewhere it would be that of the whole process."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
