"""Checkpoints: complete files or folders in $CRUCIBLE_CHECKPOINT_DIR (off-platform: ./checkpoints).

A checkpoint appears under its name only when it is complete and on disk. Names that start with a dot or end in .tmp,
.part or .partial are unfinished work and are never treated as checkpoints.
"""

from __future__ import annotations

import operator
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional, SupportsFloat, SupportsIndex, Union

from crucible.inside.paths import checkpoint_dir, resume_from
from crucible.inside.reporting import write_note
from crucible.wire.documents.checkpoint_names import is_unfinished

Source = Union[bytes, bytearray, memoryview, str, "os.PathLike[str]", Callable[[Path], object]]

__all__ = ["dir", "latest", "save"]


def dir() -> Path:
    """Return the folder of this job's checkpoints; it exists."""
    return checkpoint_dir()


def latest() -> Optional[Path]:
    """Return the newest complete checkpoint of this attempt, else the one to resume from, else None."""
    found = [path for path in checkpoint_dir().iterdir() if not is_unfinished(path.name)]
    return max(found, key=_age) if found else resume_from()


def save(
    source: Source,
    step: Optional[SupportsIndex] = None,
    metric: Optional[SupportsFloat] = None,
    name: Optional[str] = None,
) -> Path:
    """Save a checkpoint and return its path.

    `source` is bytes, the path of a file or folder to copy, or a function that gets a path and writes a file or
    folder there: `save(lambda path: torch.save(model.state_dict(), path), step)`. The default of `name` is
    `step-00000005`, or a time if there is no step; an older checkpoint of that name is replaced. `metric` helps
    to find the best checkpoint later. Raises the errors of writing; nothing half-written is left.
    """
    score = None if metric is None else float(metric)
    at = None if step is None else operator.index(step)
    target = checkpoint_dir() / _check_name(name or _default_name(source, at))
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    _discard(unfinished)
    try:
        _write(source, unfinished)
        _sync(unfinished)
        # A rename keeps inode and mtime: by them the platform tells this content from the next under the same name.
        written = os.stat(unfinished)
        _replace(unfinished, target)
    finally:
        _discard(unfinished)
    _sync_one(target.parent)
    write_note(checkpoint=target.name, step=at, metric=score, inode=written.st_ino, mtime_ns=written.st_mtime_ns)
    return target


def _default_name(source: Source, step: Optional[int]) -> str:
    stem = f"step-{step:08d}" if step is not None else time.strftime("at-%Y%m%dT%H%M%SZ", time.gmtime())
    suffix = Path(source).suffix if isinstance(source, (str, os.PathLike)) else ""
    return stem + suffix


def _check_name(name: str) -> str:
    if not name or is_unfinished(name) or Path(name).name != name or "\0" in name:
        raise ValueError(
            "the name of a checkpoint is a plain file name that does not start with a dot or end in .tmp, .part or "
            f".partial, not {name!r}"
        )
    return name


def _write(source: Source, path: Path) -> None:
    if isinstance(source, (bytes, bytearray, memoryview)):
        path.write_bytes(source)
    elif isinstance(source, (str, os.PathLike)):
        _copy(Path(source), path)
    elif callable(source):
        source(path)
        if not path.exists():
            raise FileNotFoundError(f"the function given to checkpoint.save() wrote nothing to {path}")
    else:
        raise TypeError(
            f"checkpoint.save() takes bytes, a path or a function of a path, not {type(source).__name__}; "
            "for a model: save(lambda path: torch.save(model.state_dict(), path))"
        )


def _copy(source: Path, path: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, path)
    else:
        shutil.copyfile(source, path)


def _replace(unfinished: Path, target: Path) -> None:
    if not target.is_dir() and not unfinished.is_dir():
        os.replace(unfinished, target)
        return
    # A folder cannot be replaced by a rename: move the old one aside first.
    aside = target.with_name(f".{target.name}.{os.getpid()}.old")
    _discard(aside)
    if target.exists():
        os.rename(target, aside)
    os.rename(unfinished, target)
    _discard(aside)


def _discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():
        path.unlink()


def _sync(path: Path) -> None:
    for each in _files(path):
        _sync_one(each)


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        yield from (Path(folder) for folder, _, _ in os.walk(path))
    else:
        yield path


def _sync_one(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _age(path: Path) -> tuple[int, str]:
    return path.stat().st_mtime_ns, path.name
