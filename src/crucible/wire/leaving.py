"""Leaving: how a process of ours ends that has done its work."""

from __future__ import annotations

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
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody reads it any more, or it was closed
            code = code or UNWRITTEN
        except AttributeError:
            pass  # there is none
    os._exit(code)
