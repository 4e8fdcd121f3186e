"""Folders that belong to one user."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Optional, Union


def why_not_private(folder: Union[str, os.PathLike[str]], uid: Optional[int] = None) -> str:
    """Return why others than this user could be in the folder; empty if none can. `uid`: this user (default: ours)."""
    try:
        found = os.stat(folder)
    except OSError as error:
        return f"{error.strerror}: {os.fspath(folder)}"
    if not stat.S_ISDIR(found.st_mode):
        return f"{os.fspath(folder)} is not a folder"
    if found.st_uid != (os.geteuid() if uid is None else uid):
        return f"{os.fspath(folder)} belongs to another user"
    if found.st_mode & 0o077:
        return f"{os.fspath(folder)} is open to other users (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def make_private(folder: Path) -> Path:
    """Return the folder, made if it is missing, in which only this user can put anything.

    Raises PermissionError if it could be another user's, or another OSError if it cannot be made.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    why = f"{folder} is a link" if folder.is_symlink() else why_not_private(folder)
    if why:
        raise PermissionError(why)
    return folder
