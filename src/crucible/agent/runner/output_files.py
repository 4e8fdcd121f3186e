"""Store the files in a job's output folder as artifacts."""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from crucible.agent.link.backoff import Backoff
from crucible.agent.link.channel import Channel, NoRoom
from crucible.agent.link.connection import ChannelError, Refused, Unreachable
from crucible.wire.files.paths import UnsafePath, is_inside, safe_name

MAX_FILES = 10_000
NOTE_AFTER = 20
"""Failed uploads, about a minute of them, before the user gets a note."""
_CHUNK = 1024 * 1024


@dataclass(frozen=True)
class StoredFile:
    """One stored file: the content of an ARTIFACT message."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class OutputStorer:
    """`stored` and `note` are called as files are stored or skipped; `wait` sleeps between attempts."""

    folder: Path
    channel: Channel
    stored: Callable[[StoredFile], None]
    note: Callable[[str], None]
    wait: Callable[[float], None]
    redact: Callable[[str], str] = lambda name: name
    """Masks secrets. A file whose name it changes is not stored."""

    def store(self) -> tuple[bool, str]:
        """Store everything, retrying forever. Return whether all was stored, and a text about the rest. Raises Gone."""
        left_out: list[str] = []
        delay = _DelayNotes(self.note)
        for number, (name, path) in enumerate(_files(self.folder)):
            if number < MAX_FILES:
                why = self._store(name, path, delay)
            else:
                why = f"there are more than {MAX_FILES} files"
            if why is not None:
                left_out.append(name)
                self.note(f"the output {name!a} was not stored: {why}")
            if number >= MAX_FILES:
                break
        return not left_out, _count_text(len(left_out))

    def _store(self, name: str, path: Path, delay: _DelayNotes) -> str | None:
        """Store one file. Return None, or why it was not stored."""
        if self.redact(name) != name:
            return "its name contains a secret"
        try:
            safe_name(name)
        except UnsafePath as error:
            return error.why
        if path.is_symlink() and not is_inside(self.folder, path):
            return "it is a link out of the output folder"
        try:
            return self._send(name, path, delay)
        except OSError as error:
            return error.strerror or "it cannot be read"

    def _send(self, name: str, path: Path, delay: _DelayNotes) -> str | None:
        # Non-blocking, because opening a named pipe that the job left there would hang.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as content:
            if not stat.S_ISREG(os.fstat(content.fileno()).st_mode):
                return "it is not a regular file"
            sha256, size = _digest(content.fileno())
            backoff = Backoff()
            for failures in itertools.count(1):
                try:
                    content.seek(0)
                    self.channel.put_artifact(name, content, size, sha256)
                    break
                except Unreachable as error:
                    delay.note_failure(name, failures, error)
                except Refused as error:
                    if error.status != 401:
                        return str(error)
                    delay.note_failure(name, failures, error)
                self.wait(backoff.next())
        self.stored(StoredFile(name, size, sha256))
        return None


def _count_text(left_out: int) -> str:
    if not left_out:
        return ""
    return "1 output was not stored" if left_out == 1 else f"{left_out} outputs were not stored"


class _DelayNotes:
    """Notes why outputs are not stored yet: once for each kind of error, not for each file or upload."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._known: set[type[ChannelError]] = set()

    def note_failure(self, name: str, failures: int, error: ChannelError) -> None:
        lasting = isinstance(error, NoRoom) or failures >= NOTE_AFTER
        if lasting and type(error) not in self._known:
            self._known.add(type(error))
            self._note(f"the output {name!a} is not stored yet: {error}; retrying until it is")


def _digest(descriptor: int) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while True:
        chunk = os.pread(descriptor, _CHUNK, size)
        if not chunk:
            return digest.hexdigest(), size
        digest.update(chunk)
        size += len(chunk)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield files and links below the folder by name. Links to folders are yielded, not entered."""
    for top, folders, files in os.walk(folder):
        folders.sort()
        linked = [name for name in folders if os.path.islink(os.path.join(top, name))]
        for name in sorted([*files, *linked]):
            path = Path(top, name)
            yield path.relative_to(folder).as_posix(), path
