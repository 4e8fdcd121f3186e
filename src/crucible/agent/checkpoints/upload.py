"""Stores checkpoints in the background: one at a time, tried for ever, announced only once they are stored.

Training never waits for it. At most one snapshot is on the disk at a time.
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

TOLD_AFTER = 20
"""Tries, a good minute of them."""
FULL_DISK_TRIES = 20
"""After the program has ended; while it runs it may yet make room."""
MAX_NOTES = 100
NICE = 5
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_TRY_AGAIN = (401, 422)
"""The secret is not known yet; what arrived was not what was announced."""


@dataclass(frozen=True)
class CheckpointCallbacks:
    """`announce` says that a checkpoint is stored, `note` what a person should know, `gone` that nobody wants it."""

    announce: Callable[[Mapping[str, object]], None]
    note: Callable[[str], None]
    release: Callable[[], None]


@dataclass
class UploadRecord:
    """`hashes` are by name, the last announced of each.

    `before_ns` is when the newest checkpoint that an earlier runner announced was written: an older one that
    it passed over must not be announced after it.
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
        """If it cannot be written, a later runner announces it again, which is harmless."""
        self.hashes[candidate.name] = sha256
        try:
            write_json(self.path, {"hashes": dict(self.hashes), "newest_ns": candidate.entry.newest_ns})
        except OSError as error:
            log.warning("cannot write down which checkpoints are stored: %s", error)


class CheckpointUploader(threading.Thread):
    """`record` remembers what was announced, also for a runner that comes after this one."""

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
        """Names that were announced, whatever is in them now."""
        return frozenset(self._record.hashes)

    def offer(self, whole: WholeEntry) -> None:
        if self._record.overtakes(whole):
            return
        with self._changed:
            self._waiting = self._waiting.offer(whole)
            self._changed.notify_all()

    def store_newest_only(self) -> None:
        """There is little time left: from now on the newest alone counts."""
        with self._changed:
            self._mode = Mode.HURRY

    def finish(self, *, hurry: bool) -> None:
        """Return once everything that was offered is stored, or cannot be. Raises Gone.

        Nobody writes to the files any more.
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
        """What to store now, as soon as there is something; None when nothing more will come."""
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
            self._torn[candidate.name] = str(error)  # perhaps the program goes on with it
            self._forget(candidate)
        except OSError as error:
            self._no_snapshot(candidate, error)
        else:
            self._bring(candidate, snapshot)

    def _bring(self, candidate: Candidate, snapshot: CheckpointCopy) -> None:
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
        """Whether it was stored. False: something else is to be done first, or it will never be."""
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
                if error.status not in _TRY_AGAIN:
                    self._leave_out(candidate, str(error))
                    return False
                self._later(candidate, error)
                if error.status == 422:
                    return False  # from a new snapshot
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
        patient = not self._finishing or self._tries < FULL_DISK_TRIES
        if error.errno not in _NO_ROOM or not patient:
            self._tries = 0
            self._leave_out(candidate, error.strerror or "it cannot be read")
        else:
            self._later(candidate, NoRoom("the disk of the machine is full"))

    def _later(self, candidate: Candidate, error: ChannelError) -> None:
        self._tries += 1
        if isinstance(error, NoRoom) or self._tries == TOLD_AFTER:
            self._note(f"the checkpoint {candidate.name!a} is not stored yet: {error}; it is tried again until it is")
        with self._changed:
            # A newer checkpoint does not shorten the pause; the end of the program does, once.
            finishing = self._finishing
            self._changed.wait_for(lambda: self._finishing and not finishing, self._backoff.next())

    def _note(self, text: str) -> None:
        if text not in self._noted and len(self._noted) < MAX_NOTES:
            self._noted.add(text)
            self._tell.note(text)


def _be_nice() -> None:
    """The program comes first. Linux gives each thread its own priority; elsewhere it would be the process's."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
