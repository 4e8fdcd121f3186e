"""The garbage collector of a server: asleep while it starts, and seldom at work afterwards."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

RARELY = (20_000, 20, 20)
"""When the collector looks: a thousand sockets have many objects and next to no garbage, and wait while it does."""


@contextlib.contextmanager
def asleep() -> Iterator[None]:
    """Until it is woken, or to the end: starting makes hundreds of thousands of objects, and all of them stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def wake() -> None:
    """What starting made is never garbage: from now on the collector looks at what comes later alone."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(*RARELY)
        gc.enable()
