"""Downloads artifacts and checkpoints: resumed, verified by hash, never outside the target folder."""

from __future__ import annotations

import enum
import errno
import fnmatch
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from crucible.client.api import Api
from crucible.core.errors import BadInput, Conflict, CrucibleError, DiskFull, NotFound, Trouble, Unreachable
from crucible.core.views.jobs import CheckpointView
from crucible.core.views.records import ArtifactView
from crucible.wire.files.paths import UnsafePath, safe_join

MAX_ATTEMPTS = 5
_MAX_NAMED = 10
_CHUNK = 256 * 1024


def select_artifacts(artifacts: Iterable[ArtifactView], patterns: Iterable[str]) -> tuple[ArtifactView, ...]:
    """Return the artifacts that the paths, folders or patterns match; all if there are none."""
    known = tuple(artifacts)
    chosen: dict[str, ArtifactView] = {}
    for pattern in (patterns := list(patterns)):
        matching = [item for item in known if _matches(item.path, pattern)]
        if not matching:
            names = ", ".join(item.path for item in known[:10]) or "none"
            raise NotFound(f"The job has no artifact {pattern!r}.", fix=f"It has: {names}.")
        chosen.update((item.path, item) for item in matching)
    return tuple(chosen.values()) if patterns else known


class LocalFile(enum.Enum):
    """The local file at the path of an artifact."""

    ABSENT = "absent"
    INTACT = "sound"
    DIFFERENT = "different"


def local_file(artifact: ArtifactView, into: Path) -> LocalFile:
    """Return whether the artifact is already below `into`, intact, or another file is at its path."""
    target = _target(into, artifact.path)
    if not os.path.lexists(target):
        return LocalFile.ABSENT
    return LocalFile.INTACT if _is_intact(target, artifact) else LocalFile.DIFFERENT


def refuse_to_overwrite(
    artifacts: Iterable[ArtifactView], into: Path, *, folder: str = "--to", force: str = "--force"
) -> None:
    """Raise Conflict if existing files differ from the artifacts. `folder` and `force`: how errors name the options."""
    others = [item.path for item in artifacts if local_file(item, into) is LocalFile.DIFFERENT]
    if others:
        more = f" and {len(others) - _MAX_NAMED} more" if len(others) > _MAX_NAMED else ""
        raise Conflict(
            f"{', '.join(others[:_MAX_NAMED])}{more} in {into} would be overwritten.",
            why="These files differ from the job's artifacts.",
            fix=f"Choose another folder with {folder}, or overwrite with {force}.",
            files=others,
        )


def download(
    api: Api, ref: str, artifact: ArtifactView, into: Path, *, progress: Callable[[int], None] | None = None
) -> Path:
    """Download one artifact below `into` and return its path. An intact file is kept, any other is replaced: call
    `refuse_to_overwrite` first.

    An interrupted download stays in `<name>.part`, and the next call resumes it. `progress` gets the bytes so far.
    """
    return _download(api, api.artifact_path(ref, artifact.path), artifact, into, progress or _no_progress)


def download_as(api: Api, ref: str, artifact: ArtifactView, into: Path, name: str) -> Path:
    """Download an artifact under another name below `into`, which may contain folders but not leave it."""
    renamed = artifact.model_copy(update={"path": name})
    return _download(api, api.artifact_path(ref, artifact.path), renamed, into, _no_progress)


def download_checkpoint(
    api: Api, ref: str, checkpoint: CheckpointView, into: Path, *, progress: Callable[[int], None] | None = None
) -> Path:
    """Download a checkpoint like an artifact; a folder comes as a tar archive."""
    source = api.checkpoint_path(ref, checkpoint.id)
    return _download(api, source, as_file(checkpoint), into, progress or _no_progress)


def as_file(checkpoint: CheckpointView) -> ArtifactView:
    """Return the checkpoint as the file that it is downloaded to."""
    return ArtifactView(path=checkpoint.file_name, size=checkpoint.size, sha256=checkpoint.sha256)


def _download(api: Api, source: str, artifact: ArtifactView, into: Path, progress: Callable[[int], None]) -> Path:
    target = _target(into, artifact.path)
    if _is_intact(target, artifact):
        return target
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(MAX_ATTEMPTS):
            try:
                _fetch(api, source, artifact, part, progress)
                break
            except Unreachable:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
                api.transport.relocate()
        _check(part, artifact)
        os.replace(part, target)
    except OSError as error:
        raise _disk_error(target, error) from error
    return target


def _fetch(api: Api, source: str, artifact: ArtifactView, part: Path, progress: Callable[[int], None]) -> None:
    """Append the missing bytes; from a server without ranges, download everything again."""
    have = part.stat().st_size if part.exists() else 0
    if have > artifact.size:
        part.unlink()
        have = 0
    if have == artifact.size and part.exists():
        return
    headers = {"Range": f"bytes={have}-", "If-Range": f'"{artifact.sha256}"'} if have else {}
    with api.transport.download(source, headers=headers) as response:
        if response.status_code == 416:
            part.unlink(missing_ok=True)
            raise Unreachable(f"The server has no such range of {artifact.path}.", fix="Download it again.")
        resumed = response.status_code == 206
        with part.open("ab" if resumed else "wb") as file:
            for data in response.pieces(_CHUNK):
                file.write(data)
                progress(file.tell())


def _check(part: Path, artifact: ArtifactView) -> None:
    if _sha256(part) != artifact.sha256:
        part.unlink()
        raise Trouble(
            f"{artifact.path} was damaged on the way.",
            why="Its hash differs from the server's.",
            fix="Download it again.",
        )


def _is_intact(target: Path, artifact: ArtifactView) -> bool:
    try:
        return target.stat().st_size == artifact.size and _sha256(target) == artifact.sha256
    except OSError:
        return False


def _target(into: Path, name: str) -> Path:
    try:
        return safe_join(into, name)
    except UnsafePath as error:
        raise BadInput(
            f"The artifact {error.name!a} {error.why}.",
            why="Its name would lead out of the folder.",
            fix="Choose another folder with --to, or leave this artifact out.",
        ) from error


def _matches(path: str, pattern: str) -> bool:
    folder = pattern.rstrip("/") + "/"
    return path == pattern or path.startswith(folder) or fnmatch.fnmatchcase(path, pattern)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _disk_error(target: Path, error: OSError) -> CrucibleError:
    if error.errno == errno.ENOSPC:
        return DiskFull(
            f"The disk is full: no room for {target}.", fix="Free some space, then download again: it resumes."
        )
    return Trouble(f"{target} cannot be written.", why=error.strerror or str(error), fix="Choose another folder.")


def _no_progress(_bytes: int) -> None:
    return None
