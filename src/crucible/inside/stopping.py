"""Check whether the platform asked the job to stop (SIGTERM, or the stop file), or to save a checkpoint.

Importing installs nothing. The first `should_stop()` or `on_stop()` in the main thread installs a handler for SIGTERM;
from then on SIGTERM no longer ends the process by itself. A handler that the program had installed is still called.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Callable, Optional


class _StopSignal:
    def __init__(self) -> None:
        self.requested = False
        self.callbacks: list[Callable[[], object]] = []
        self._installed = False
        self._before: object = None

    def install(self) -> None:
        if self._installed:
            return
        try:
            self._before = signal.signal(signal.SIGTERM, self._received)
        except ValueError:
            # Only the main thread may install a handler; the stop file works in every thread.
            return
        self._installed = True

    def _received(self, number: int, frame: Optional[FrameType]) -> None:
        first, self.requested = not self.requested, True
        if first:
            for callback in self.callbacks:
                callback()
        if callable(self._before):
            self._before(number, frame)


class _CheckpointRequest:
    """The last request for a checkpoint that this process has seen."""

    def __init__(self) -> None:
        self._seen: Optional[tuple[int, int]] = None

    def is_new(self, request: tuple[int, int]) -> bool:
        new, self._seen = request != self._seen, request
        return new


_stop = _StopSignal()
_requested = _CheckpointRequest()


def should_stop() -> bool:
    """Return whether the job was asked to stop: save a checkpoint and leave the loop. Cheap; call it every step."""
    _stop.install()
    path = os.environ.get("CRUCIBLE_STOP_FILE")
    return _stop.requested or bool(path and os.path.exists(path))


def on_stop(callback: Optional[Callable[[], object]] = None) -> None:
    """Watch for SIGTERM from now on, and call `callback` once when it arrives.

    The callback runs in the main thread between two steps of the program; if SIGTERM has already arrived, at once.
    """
    _stop.install()
    if callback is None:
        return
    if _stop.requested:
        callback()
    else:
        _stop.callbacks.append(callback)


def should_checkpoint() -> bool:
    """Return True once for each requested checkpoint, in each process that calls it: save one and continue.

    Cheap; call it every step. Off the platform it is always False.
    """
    path = os.environ.get("CRUCIBLE_CHECKPOINT_NOW")
    if not path:
        return False
    try:
        found = os.stat(path)
    except OSError:
        return False
    return _requested.is_new((found.st_ino, found.st_mtime_ns))
