"""Lines: those to children that have answered and may be asked again, by whom they have answered.

What a hostile program could do to its reader happens to the programs of whoever sent it, and to nobody else's.
"""

from __future__ import annotations

import socket
import threading
from typing import NamedTuple

from crucible.analysis.asking import AT_REST


class Lines:
    """`most` in all; whoever asked longest ago loses his. Safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: list[_Line] = []

    def take(self, whose: str | None) -> socket.socket | None:
        """One over which the same has asked before, if its child is at rest. It is the taker's then."""
        with self._lock:
            for line in reversed([each for each in self._kept if each.whose == whose]):
                at_rest = line.at_rest()
                if at_rest is not None:
                    self._kept.remove(line)
                if at_rest:
                    return line.socket
                if at_rest is False:
                    line.socket.close()
        return None

    def keep(self, whose: str, line: socket.socket) -> None:
        with self._lock:
            self._kept.append(_Line(whose, line))
            self._drop(len(self._kept) - self._most)

    def close(self) -> None:
        with self._lock:
            self._drop(len(self._kept))

    def _drop(self, count: int) -> None:
        """The oldest; their children end when they see it."""
        while count > 0:
            self._kept.pop(0).socket.close()
            count -= 1


class _Line(NamedTuple):
    whose: str
    socket: socket.socket

    def at_rest(self) -> bool | None:
        """Whether the child can be asked; None while it has not done with its last answer, False when it is gone."""
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1) == AT_REST
        except BlockingIOError:
            return None
        except OSError:
            return False
