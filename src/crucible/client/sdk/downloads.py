"""Fetching artifacts and checkpoints: resumed where it stopped, checked by hash, never outside the target folder."""

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

TRIES = 5
_NAMED = 10
_CHUNK = 256 * 1024


def select_artifacts(artifacts: Iterable[ArtifactView], wanted: Iterable[str]) -> tuple[ArtifactView, ...]:
    """The artifacts that the wanted paths, folders or patterns name; all if nothing is wanted."""
    known = tuple(artifacts)
    chosen: dict[str, ArtifactView] = {}
    patterns = list(wanted)
    for pattern in patterns:
        found = [item for item in known if _matches(item.path, pattern)]
        if not found:
            names = ", ".join(item.path for item in known[:10]) or "none"
            raise NotFound(f"The job has no artifact {pattern!r}.", fix=f"It has: {names}.")
        chosen.update((item.path, item) for item in found)
    return tuple(chosen.values()) if patterns else known


class LocalFile(enum.Enum):
    """What is at the place of an artifact on this computer."""

    ABSENT = "absent"
    INTACT = "sound"
    DIFFERENT = "different"


def local_file(artifact: ArtifactView, into: Path) -> LocalFile:
    """Whether the artifact is already below `into`, whole, or something else is in its place."""
    target = _target(into, artifact.path)
    if not os.path.lexists(target):
        return LocalFile.ABSENT
    return LocalFile.INTACT if _is_sound(target, artifact) else LocalFile.DIFFERENT


def refuse_to_overwrite(
    artifacts: Iterable[ArtifactView], into: Path, *, folder: str = "--to", force: str = "--force"
) -> None:
    """Raise Conflict, naming them, if files that are there differ from what would be written.

    `folder` is the option that chooses another folder, `force` the one that overwrites.
    """
    others = [item.path for item in artifacts if local_file(item, into) is LocalFile.DIFFERENT]
    if others:
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        raise Conflict(
            f"{', '.join(others[:_NAMED])}{more} in {into} would be overwritten.",
            why="What is there differs from what the job left.",
            fix=f"Choose another folder with {folder}, or overwrite with {force}.",
            files=others,
        )


def download(
    api: Api, ref: str, artifact: ArtifactView, into: Path, *, progress: Callable[[int], None] | None = None
) -> Path:
    """Fetch one artifact below `into` and return its path. A whole, sound file that is there is kept; any
    other is replaced, so ask `refuse_to_overwrite` first.

    What came so far stays in `<name>.part`, and the next call goes on from there. `progress` is told the
    bytes that are there.
    """
    return _download(api, api.artifact_path(ref, artifact.path), artifact, into, progress or _silent)


def download_as(api: Api, ref: str, artifact: ArtifactView, into: Path, name: str) -> Path:
    """The same under another name below `into`, which may lead into folders but not out of it."""
    renamed = artifact.model_copy(update={"path": name})
    return _download(api, api.artifact_path(ref, artifact.path), renamed, into, _silent)


def download_checkpoint(
    api: Api, ref: str, checkpoint: CheckpointView, into: Path, *, progress: Callable[[int], None] | None = None
) -> Path:
    """The same for a checkpoint; a folder is one tar archive."""
    source = api.checkpoint_path(ref, checkpoint.id)
    return _download(api, source, as_file(checkpoint), into, progress or _silent)


def as_file(checkpoint: CheckpointView) -> ArtifactView:
    """The file that a checkpoint becomes on this computer."""
    return ArtifactView(path=checkpoint.file_name, size=checkpoint.size, sha256=checkpoint.sha256)


def _download(api: Api, source: str, artifact: ArtifactView, into: Path, progress: Callable[[int], None]) -> Path:
    target = _target(into, artifact.path)
    if _is_sound(target, artifact):
        return target
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(TRIES):
            try:
                _fetch(api, source, artifact, part, progress)
                break
            except Unreachable:
                if attempt == TRIES - 1:
                    raise
                api.transport.relocate()
        _check(part, artifact)
        os.replace(part, target)
    except OSError as error:
        raise _disk_error(target, error) from error
    return target


def _fetch(api: Api, source: str, artifact: ArtifactView, part: Path, progress: Callable[[int], None]) -> None:
    """Append what is missing. A server that does not know ranges sends all again."""
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
            raise Unreachable(f"The server has no more of {artifact.path}.", fix="Download it again.")
        resumed = response.status_code == 206
        with part.open("ab" if resumed else "wb") as file:
            for data in response.pieces(_CHUNK):
                file.write(data)
                progress(file.tell())


def _check(part: Path, artifact: ArtifactView) -> None:
    if _sha256(part) != artifact.sha256:
        part.unlink()
        raise Trouble(
            f"{artifact.path} arrived damaged.",
            why="Its hash is not the one the server names.",
            fix="Download it again.",
        )


def _is_sound(target: Path, artifact: ArtifactView) -> bool:
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
        return DiskFull(f"There is no room left for {target}.", fix="Make room, then download again: it resumes.")
    return Trouble(f"{target} cannot be written.", why=error.strerror or str(error), fix="Choose another folder.")


def _silent(_bytes: int) -> None:
    return None
