"""Tell a file or folder from another one at the same path."""

from __future__ import annotations

import os
from typing import Union


def identity(found: os.stat_result) -> str:
    """Return what tells this file or folder from every copy of it, while it exists."""
    return f"{found.st_dev}:{found.st_ino}"


def leads_to(path: Union[str, os.PathLike[str]], known: os.stat_result, *, if_unknown: bool = False) -> bool:
    """Return whether the path leads to the known file or folder; `if_unknown` if that cannot be found out."""
    try:
        return os.path.samestat(os.stat(path), known)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return if_unknown
