"""Lines: those to children that have answered and may be asked again, by whoever they have answered.

What a hostile program could do to its reader happens to the programs of whoever sent it, and to nobody else's.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Hashable
from enum import Enum
from typing import NamedTuple

from crucible.analysis.asking import AT_REST


class Lines:
    """`most` in all; whoever asked longest ago loses his. Safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: list[_Line] = []
        self._closed = False

    def take(self, whose: Hashable) -> socket.socket | None:
        """One over which the same has asked before, if its child is at rest. It is the taker's then."""
        with self._lock:
            for line in reversed([each for each in self._kept if each.whose == whose]):
                state = line.state()
                if state is _State.BUSY:
                    continue
                self._kept.remove(line)
                if state is _State.AT_REST:
                    return line.socket
                line.socket.close()
        return None

    def keep(self, whose: Hashable, line: socket.socket) -> None:
        with self._lock:
            self._kept.append(_Line(whose, line))
            self._drop(len(self._kept) - (0 if self._closed else self._most))

    def close(self) -> None:
        """Those that are there, and those that come later."""
        with self._lock:
            self._closed = True
            self._drop(len(self._kept))

    def _drop(self, count: int) -> None:
        """The oldest; their children end when they see it."""
        for _ in range(count):
            self._kept.pop(0).socket.close()


class _State(Enum):
    BUSY = "has not done with its last answer"
    AT_REST = "can be asked"
    GONE = "has ended, or says what it should not"


class _Line(NamedTuple):
    whose: Hashable
    socket: socket.socket

    def state(self) -> _State:
        self.socket.setblocking(False)
        try:
            return _State.AT_REST if self.socket.recv(1) == AT_REST else _State.GONE
        except BlockingIOError:
            return _State.BUSY
        except OSError:
            return _State.GONE
