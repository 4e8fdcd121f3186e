"""Store a job's output files as artifacts."""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from crucible.agent.link.backoff import Backoff
from crucible.agent.link.channel import Channel, NoRoom
from crucible.agent.link.connection import ChannelError, Refused, Unreachable
from crucible.wire.files.paths import UnsafePath, is_inside, safe_name

MAX_FILES = 10_000
MAX_BYTES = 20 * 1000**3
"""Outputs of one attempt; what comes after them is left out."""
MAX_SEARCHED = 1024 * 1024
"""Bytes of a file that is searched for secrets; larger ones are data."""
MAX_NOTES = 20
"""Notes about single files that were left out; a sentence at the end counts all of them."""
NOTE_AFTER = 20
"""Failed uploads, about a minute of them, before the user gets a note."""
NAMED = 3
_CHUNK = 1024 * 1024


@dataclass(frozen=True)
class OutputFile:
    """A file to store under `name`. If `path` is a link, it must not lead out of `root`.

    `asked_for`: the job wrote it to the output folder. Another file is not stored if it contains a secret, nor if the
    store stays full: the machine may bill meanwhile.
    """

    name: str
    path: Path
    root: Path
    asked_for: bool = True


@dataclass(frozen=True)
class StoredFile:
    """One stored file: the content of an ARTIFACT message."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class OutputStorer:
    """`stored` and `note` are called as files are stored or left out; `wait` sleeps between attempts."""

    channel: Channel
    stored: Callable[[StoredFile], None]
    note: Callable[[str], None]
    wait: Callable[[float], None]
    has_secret: Callable[[bytes], bool] = lambda data: False
    """Returns whether a name or the content of a small file contains a secret."""

    def store(self, files: Iterable[OutputFile], others: int = 0) -> tuple[bool, str]:
        """Store the files in order, with retries. Return whether all was stored, and a text about the rest.

        `others` counts more files, which are left out because there are too many. Raises Gone.
        """
        left_out = _LeftOut(self.note)
        delay = _DelayNotes(self.note)
        known: set[str] = set()
        room = MAX_BYTES
        for file in files:
            if file.name in known:
                left_out.add(file.name, "another output has this name")
            elif len(known) >= MAX_FILES:
                others += 1
            else:
                known.add(file.name)
                try:
                    room -= self._store(file, room, delay)
                except _NotStored as error:
                    left_out.add(file.name, str(error))
        if others:
            left_out.add_others(others)
        return not left_out.count, left_out.summary()

    def _store(self, file: OutputFile, room: int, delay: _DelayNotes) -> int:
        """Store one file; return its size. Raises _NotStored."""
        if self.has_secret(os.fsencode(file.name)):
            raise _NotStored("its name contains a secret")
        try:
            safe_name(file.name)
        except UnsafePath as error:
            raise _NotStored(error.why) from error
        if file.path.is_symlink() and not is_inside(file.root, file.path):
            raise _NotStored("it is a link out of its folder")
        try:
            return self._send(file, room, delay)
        except OSError as error:
            raise _NotStored(error.strerror or "it cannot be read") from error

    def _send(self, file: OutputFile, room: int, delay: _DelayNotes) -> int:
        # Non-blocking, because opening a named pipe that the job left there would hang.
        with open(os.open(file.path, os.O_RDONLY | os.O_NONBLOCK), "rb") as content:
            if not stat.S_ISREG(os.fstat(content.fileno()).st_mode):
                raise _NotStored("it is not a regular file")
            sha256, size = _digest(content.fileno())
            if size > room:
                raise _NotStored(f"the outputs of a job are limited to {MAX_BYTES / 1000**3:g} GB")
            if not file.asked_for and size <= MAX_SEARCHED and self.has_secret(content.read()):
                raise _NotStored("it contains a secret")
            backoff = Backoff()
            for failures in itertools.count(1):
                try:
                    content.seek(0)
                    self.channel.put_artifact(file.name, content, size, sha256)
                    break
                except Unreachable as error:
                    delay.note_failure(file.name, failures, error)
                    if isinstance(error, NoRoom) and not file.asked_for and delay.is_lasting(failures):
                        raise _NotStored(f"the store has no room: {error}") from error
                except Refused as error:
                    if error.status != 401:
                        raise _NotStored(str(error)) from error
                    delay.note_failure(file.name, failures, error)
                self.wait(backoff.next())
        self.stored(StoredFile(file.name, size, sha256))
        return size


class _NotStored(Exception):
    """A file was left out; the text says why."""


class _LeftOut:
    """Counts the files that were not stored, and notes why of the first ones."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._names: list[str] = []
        self.count = 0

    def add(self, name: str, why: str) -> None:
        self.count += 1
        if self.count <= MAX_NOTES:
            self._note(f"the output {name!a} was not stored: {why}")
        if self.count <= NAMED:
            self._names.append(name if name.isprintable() else ascii(name))

    def add_others(self, others: int) -> None:
        self.count += others
        what = "1 output was" if others == 1 else f"{others} outputs were"
        self._note(f"{what} not stored: there are more than {MAX_FILES} files")

    def summary(self) -> str:
        if not self.count:
            return ""
        what = "1 output was not stored" if self.count == 1 else f"{self.count} outputs were not stored"
        names = ", ".join([*self._names, "…"] if self.count > len(self._names) else self._names)
        return f"{what}: {names}"


class _DelayNotes:
    """Notes why outputs are not stored yet: once for each kind of error, not for each file or upload."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._known: set[type[ChannelError]] = set()
        self._lasts = False

    def is_lasting(self, failures: int) -> bool:
        """Return whether a full store has stayed full for so many tries, of this file or of one before it."""
        self._lasts |= failures >= NOTE_AFTER
        return self._lasts

    def note_failure(self, name: str, failures: int, error: ChannelError) -> None:
        lasting = isinstance(error, NoRoom) or failures >= NOTE_AFTER
        if lasting and type(error) not in self._known:
            self._known.add(type(error))
            self._note(f"the output {name!a} is not stored yet: {error}; retrying")


def _digest(descriptor: int) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while True:
        chunk = os.pread(descriptor, _CHUNK, size)
        if not chunk:
            return digest.hexdigest(), size
        digest.update(chunk)
        size += len(chunk)


def files_below(folder: Path) -> Iterator[OutputFile]:
    """Yield files and links below the folder by name. Links to folders are yielded, not entered."""
    for top, folders, files in os.walk(folder):
        folders.sort()
        linked = [name for name in folders if os.path.islink(os.path.join(top, name))]
        for name in sorted([*files, *linked]):
            path = Path(top, name)
            yield OutputFile(path.relative_to(folder).as_posix(), path, folder)
