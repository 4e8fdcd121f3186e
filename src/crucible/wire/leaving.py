"""Leaving: how a process of ours ends that has done its work."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

UNWRITTEN = 120
"""Python's own exit code where what was written last could not be."""


def leave(code: int) -> NoReturn:
    """End this process with what it wrote written, and nothing else.

    To take apart, object by object, what it has loaded takes Python a tenth of a short life. Whoever calls this has
    closed what must be closed: neither threads nor `atexit` are waited for.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except OSError as error:
            code = code or UNWRITTEN
            _say(error)
    os._exit(code)


def _say(error: OSError) -> None:
    """Unless it is that nobody reads any more, or nothing can be said either."""
    with contextlib.suppress(OSError):
        if not isinstance(error, BrokenPipeError):
            os.write(2, f"What was written last could not be: {error}\n".encode())
