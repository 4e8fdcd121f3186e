"""Stage a job's code and inputs on this machine."""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from crucible.agent.link.backoff import Backoff
from crucible.agent.link.channel import Channel
from crucible.agent.link.connection import Gone, Refused, Unreachable
from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.agent.runner.staging_context import StagingContext, StagingError
from crucible.wire.documents.desired import Assignment, DataItem
from crucible.wire.files.archive import unpack
from crucible.wire.files.disk_space import DiskSpace, NotEnoughSpace
from crucible.wire.files.paths import UnsafePath, safe_join
from crucible.wire.files.tar_stream import BadArchive

MAX_BUNDLE_BYTES = 16 * 1024**3
MAX_BUNDLE_FILES = 1_000_000
CACHE_FILES = 64
STALL_SECONDS = 60.0
DOWNLOAD_SECONDS = 6 * 3600.0
DOWNLOAD_ATTEMPTS = 5
_CHUNK = 256 * 1024


def start_folder(code: Path, workdir: str | None) -> Path:
    """Return the folder of the code to start in; it is made if it has no files. Raises StagingError."""
    if workdir is None:
        return code
    try:
        folder = safe_join(code, workdir)
        folder.mkdir(parents=True, exist_ok=True)
    except (UnsafePath, OSError) as error:
        raise StagingError(f"the job cannot start in {workdir}: {error}") from error
    return folder


@dataclass(frozen=True)
class Stager:
    """Stages into an attempt's folder. `cache` keeps bundles for later attempts; None on a single-attempt machine."""

    channel: Channel
    work: StagingContext
    cache: Path | None

    def code(self, assignment: Assignment, folder: AttemptFolder) -> Path:
        """Stage the code; returns its top folder. Raises StagingError, Gone, StagingAborted."""
        if assignment.in_place is not None:
            user_folder = Path(assignment.in_place)
            if not user_folder.is_dir():
                raise StagingError(f"the folder {user_folder} is not on this machine; run without --in-place")
            return user_folder
        if assignment.bundle is None:
            folder.work.mkdir()
            return folder.work
        self._unpack(self._bundle(assignment.bundle, folder), folder.work)
        return folder.work

    def data(self, items: tuple[DataItem, ...], folder: AttemptFolder) -> None:
        """Stage the inputs. Raises StagingError, StagingAborted."""
        for item in items:
            try:
                target = safe_join(folder.data, item.name)
            except UnsafePath as error:
                raise StagingError(f"bad name of an input: {error}") from error
            target.parent.mkdir(parents=True, exist_ok=True)
            self._stage_input(item, target)

    # Bundles

    def _unpack(self, archive: Path, target: Path) -> None:
        try:
            with open(archive, "rb") as source:
                unpack(source, target, max_bytes=MAX_BUNDLE_BYTES, max_files=MAX_BUNDLE_FILES)
        except BadArchive as error:
            raise StagingError(f"the job's code cannot be unpacked: {error.reason}") from error
        except NotEnoughSpace as error:
            raise StagingError(f"the job's code cannot be unpacked: {error}; free some space there") from error
        except OSError as error:
            raise StagingError(f"the job's code cannot be unpacked: {error}; is the disk full?") from error

    def _bundle(self, sha256: str, folder: AttemptFolder) -> Path:
        if self.cache is None:
            path = folder.root / "bundle.tar.gz"
            self._fetch(sha256, path)
            return path
        self.cache.mkdir(parents=True, exist_ok=True)
        path = self.cache / f"{sha256}.tar.gz"
        lock = self.work.take_lock(self.cache / f"{sha256}.lock", "waiting for another job to fetch the same code")
        try:
            if not path.exists() or _sha256(path) != sha256:
                self._fetch(sha256, path)
                _remove_oldest(self.cache, keep=path)
            os.utime(path)
        finally:
            lock.remove()
        return path

    def _fetch(self, sha256: str, path: Path) -> None:
        """Download to `path`, resuming a partial download and retrying until the server answers."""
        self.work.status("fetching the code")
        part = path.with_name(path.name + ".part")
        backoff = Backoff()
        while True:
            self.work.check_aborted()
            try:
                self._download(sha256, part)
                break
            except Unreachable:
                self.work.aborted.wait(backoff.next())
            except Gone:
                raise
            except Refused as error:
                raise StagingError(f"the job's code cannot be downloaded: {error}") from error
        os.replace(part, path)

    def _download(self, sha256: str, part: Path) -> None:
        start = part.stat().st_size if part.exists() else 0
        space = DiskSpace(part.parent)
        try:
            with open(part, "ab") as file:
                for chunk in self.channel.bundle(sha256, start):
                    self.work.check_aborted()
                    space.take(len(chunk))
                    file.write(chunk)
        except Refused as error:
            if error.status != 416:  # the range is beyond the end: the file is complete or wrong, and the hash decides
                raise
        except OSError as error:
            raise StagingError(f"the job's code cannot be written: {error}") from error
        if _sha256(part) != sha256:
            part.unlink()
            raise Unreachable("the downloaded bundle is damaged")

    # Data

    def _stage_input(self, item: DataItem, target: Path) -> None:
        scheme = urlsplit(item.source).scheme if "://" in item.source else ""
        if scheme in ("http", "https"):
            self.work.status(f"downloading {item.name}")
            self._download_data(item, target)
        elif scheme == "file":
            self._link(item, Path(unquote(urlsplit(item.source).path)), target)
        elif scheme:
            raise StagingError(
                f"input {item.name!r}: this machine cannot read {scheme}:// sources; "
                "use a local path, file:// or https://"
            )
        else:
            self._link(item, Path(item.source), target)

    def _link(self, item: DataItem, source: Path, target: Path) -> None:
        if not source.is_absolute() or not source.exists():
            raise StagingError(f"input {item.name!r}: {source} is not on this machine")
        target.symlink_to(source)

    def _download_data(self, item: DataItem, target: Path) -> None:
        backoff = Backoff(first=0.5)
        for left in reversed(range(DOWNLOAD_ATTEMPTS)):
            self.work.check_aborted()
            try:
                self._copy_url(item.source, target)
                return
            except urllib.error.HTTPError as error:
                if error.code < 500 or not left:
                    raise StagingError(f"input {item.name!r}: the server answered {error.code}") from error
            except NotEnoughSpace as error:
                raise StagingError(f"input {item.name!r} cannot be stored: {error}; free some space there") from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                if not left:
                    raise StagingError(f"input {item.name!r} cannot be downloaded: {error}") from error
            self.work.aborted.wait(backoff.next())

    def _copy_url(self, url: str, target: Path) -> None:
        deadline = time.monotonic() + DOWNLOAD_SECONDS
        request = urllib.request.Request(url, headers={"User-Agent": "crucible"})  # noqa: S310  scheme checked
        with urllib.request.urlopen(request, timeout=STALL_SECONDS) as answer, open(target, "wb") as file:  # noqa: S310
            size = answer.headers.get("Content-Length")
            space = DiskSpace(target.parent)
            space.check(int(size or 0))
            while True:
                self.work.check_aborted()
                chunk = answer.read(_CHUNK)
                if not chunk:
                    break
                space.take(len(chunk))
                file.write(chunk)
                if time.monotonic() > deadline:
                    raise StagingError(f"{url} took longer than {DOWNLOAD_SECONDS / 3600:g} hours")
        if size is not None and target.stat().st_size != int(size):
            raise OSError("the download ended early")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _remove_oldest(cache: Path, keep: Path) -> None:
    bundles = sorted(cache.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)
    for path in bundles[:-CACHE_FILES]:
        if path != keep:
            path.unlink()
