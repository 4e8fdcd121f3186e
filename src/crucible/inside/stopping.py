"""Whether the platform asked the job to stop (SIGTERM, or the stop file), or to save a checkpoint and go on.

Nothing is installed by importing. The first `should_stop()` or `on_stop()` in the main thread puts a
handler on SIGTERM; from then on SIGTERM no longer ends the process by itself, and a handler the program
had is still called.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Callable, Optional


class _StopSignal:
    def __init__(self) -> None:
        self.asked = False
        self.callbacks: list[Callable[[], object]] = []
        self._installed = False
        self._before: object = None

    def install(self) -> None:
        if self._installed:
            return
        try:
            self._before = signal.signal(signal.SIGTERM, self._received)
        except ValueError:
            # Only the main thread may do it; the stop file works everywhere.
            return
        self._installed = True

    def _received(self, number: int, frame: Optional[FrameType]) -> None:
        first, self.asked = not self.asked, True
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
_asked = _CheckpointRequest()


def should_stop() -> bool:
    """True once the job was asked to stop: save a checkpoint and leave the loop. Cheap; ask every step."""
    _stop.install()
    path = os.environ.get("CRUCIBLE_STOP_FILE")
    return _stop.asked or bool(path and os.path.exists(path))


def on_stop(callback: Optional[Callable[[], object]] = None) -> None:
    """Watches for SIGTERM from now on. Calls `callback` once when SIGTERM arrives, in the main thread
    between two steps of the program.

    After SIGTERM has arrived it is called at once.
    """
    _stop.install()
    if callback is None:
        return
    if _stop.asked:
        callback()
    else:
        _stop.callbacks.append(callback)


def should_checkpoint() -> bool:
    """True once for each time a checkpoint was asked for, in each process that asks: save one and go on.

    Cheap; ask every step. Off the platform it is always False.
    """
    path = os.environ.get("CRUCIBLE_CHECKPOINT_NOW")
    if not path:
        return False
    try:
        found = os.stat(path)
    except OSError:
        return False
    return _asked.is_new((found.st_ino, found.st_mtime_ns))
