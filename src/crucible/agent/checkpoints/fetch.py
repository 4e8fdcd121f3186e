"""Fetch the checkpoint that a job resumes from."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from crucible.agent.link.backoff import Backoff
from crucible.agent.link.channel import Channel
from crucible.agent.link.connection import Refused, Unreachable
from crucible.agent.runner.staging_context import StagingContext, StagingError
from crucible.wire.documents.desired import Resume
from crucible.wire.files.archive import unpack
from crucible.wire.files.disk_space import DiskSpace
from crucible.wire.files.paths import UnsafePath, safe_name
from crucible.wire.files.tar_stream import BadArchive

MAX_BYTES = 1024**4
MAX_FILES = 1_000_000
BAD_TRIES = 5
"""Retries after a wrong response: a store may lag behind, or a transfer may be damaged."""
_CHUNK = 1024 * 1024


class _Wrong(Exception):
    """The response of the server is not the checkpoint."""


def fetch(resume: Resume, job: str, target: Path, channel: Channel, work: StagingContext) -> None:
    """Download the checkpoint to `target`, a file or a folder, and verify it.

    Resumes a partial download, and retries until the server answers. Raises StagingError, StagingAborted, Gone.
    """
    _Fetch(resume, job, target, channel, work).run()


@dataclass(frozen=True)
class _Fetch:
    resume: Resume
    job: str
    target: Path
    channel: Channel
    work: StagingContext

    def run(self) -> None:
        step = "" if self.resume.step is None else f" (step {self.resume.step})"
        self.work.status(f"fetching checkpoint {self.resume.name}{step}")
        self._check_name()
        part = self.target.with_name(".part")
        try:
            self.target.parent.mkdir(mode=0o700, exist_ok=True)
            copies = 2 if self.resume.form == "folder" else 1
            DiskSpace(self.target.parent).check(self.resume.size * copies)
            self._download(part)
            self._place(part)
        except OSError as error:
            raise self._error(f"it cannot be written: {error}") from error

    def _check_name(self) -> None:
        try:
            if "/" in safe_name(self.resume.name):
                raise self._error("its name is not a plain file name")
        except UnsafePath as error:
            raise self._error(f"its name {error.why}") from error

    def _download(self, part: Path) -> None:
        backoff, wrong = Backoff(), 0
        while True:
            self.work.check_aborted()
            try:
                self._resume_download(part)
                return
            except Unreachable:
                pass
            except _Wrong as error:
                wrong += 1
                if wrong >= BAD_TRIES:
                    raise self._error(str(error)) from error
            self.work.aborted.wait(backoff.next())

    def _resume_download(self, part: Path) -> None:
        have = part.stat().st_size if part.exists() else 0
        space = DiskSpace(part.parent)
        try:
            with open(part, "ab") as file:
                for chunk in self.channel.get_checkpoint(self.resume.sha256, have) if have < self.resume.size else ():
                    self.work.check_aborted()
                    space.take(len(chunk))
                    file.write(chunk)
        except Refused as error:
            if error.status != 416:  # the range is beyond the end: the local file is checked below
                raise _Wrong(str(error)) from error
        if not self._is_right(part):
            part.unlink()
            raise _Wrong("the download is damaged")

    def _is_right(self, part: Path) -> bool:
        found = hashlib.sha256()
        with open(part, "rb") as file:
            for chunk in iter(lambda: file.read(_CHUNK), b""):
                found.update(chunk)
        return part.stat().st_size == self.resume.size and found.hexdigest() == self.resume.sha256

    def _place(self, part: Path) -> None:
        if self.resume.form != "folder":
            os.replace(part, self.target)
            return
        try:
            with open(part, "rb") as source:
                unpack(source, self.target, max_bytes=MAX_BYTES, max_files=MAX_FILES, compressed=False)
        except BadArchive as error:
            raise self._error(f"it cannot be unpacked: {error.reason}") from error
        part.unlink()

    def _error(self, why: str) -> StagingError:
        return StagingError(
            f"the checkpoint {self.resume.name} to start from cannot be used: {why}; choose another one with "
            f"`crucible resume {self.job} --checkpoint ...` (`crucible checkpoints {self.job}` lists them)"
        )
