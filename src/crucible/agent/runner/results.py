"""Reads the result that a job left in its file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from crucible.wire.documents.results import MAX_BYTES, BadResult, Result, decode_result


def read_result(path: Path) -> Result | None:
    """The result; None when the job left none. Raises BadResult for what is none."""
    try:
        # Without waiting: a job may have left a pipe there.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise BadResult("it is no regular file")
            return decode_result(file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadResult(error.strerror or "it cannot be read") from error
