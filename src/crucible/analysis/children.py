"""Children: the forks of the warm process, one for each asker, and the spare that waits for the next.

A question does not wait for a fork and for memory, where there was time to make a spare: while there is no other
child, or a processor has nothing else to do. Whether a child reads or rests, only it and its asker know.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

from crucible.analysis.processors import Processors

Act = Callable[[socket.socket, bool], None]
"""What a child does, with the end of the line on which its asker comes, and whether there is time to prepare."""

SOON = 0.3
"""Seconds until it is looked again whether a spare can be made."""


class Children:
    """Of a process with one thread, which handles their ends: it has none besides them."""

    def __init__(self, owner: socket.socket, act: Act) -> None:
        self._owner = owner
        self._act = act
        self._ended, self._ending = socket.socketpair()
        self._spare: tuple[int, socket.socket] | None = None
        self._due = True
        self._taken: set[int] = set()
        self._processors = Processors()
        for each in (self._ended, self._ending):
            each.setblocking(False)
        signal.signal(signal.SIGCHLD, _noted)
        signal.set_wakeup_fd(self._ending.fileno(), warn_on_full_buffer=False)

    def asked(self, idle: float) -> bool:
        """Waits for word of the owner; False when there is none for so many seconds, and no child either."""
        until = time.monotonic() + idle
        while True:
            if self._due and (not self._taken or self._processors.free()):
                self._spare, self._due = self._forked(), False
            heard, _, _ = select.select([self._owner, self._ended], [], [], self._patience(until))
            if self._ended in heard:
                self._bury()
                until = time.monotonic() + idle
            if self._owner in heard:
                return True
            if not self._taken and time.monotonic() >= until:
                return False

    def _patience(self, until: float) -> float | None:
        """Seconds to wait for anything to happen; None is without end. Whoever has children waits for theirs."""
        left = None if self._taken else max(0.0, until - time.monotonic())
        return left if not self._due else SOON if left is None else min(left, SOON)

    def _bury(self) -> None:
        """Those that ended leave nothing behind."""
        self._ended.recv(4096)
        while self._taken or self._spare:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._taken.discard(pid)
            if self._spare is not None and self._spare[0] == pid:
                self._spare[1].close()
                self._spare = None

    def hand_over(self, asker: socket.socket) -> None:
        """Closes it: an asker sees that nobody took its question when no child says that it did."""
        child = self._spare or self._forked(asker)
        self._spare, self._due = None, True  # one for each question, so that spares that die are not made for ever
        with asker:
            if child is None:
                return
            pid, line = child
            self._taken.add(pid)
            with line:
                try:
                    socket.send_fds(line, [b"?"], [asker.fileno()])
                except OSError:
                    return  # it was ended meanwhile

    def _forked(self, asker: socket.socket | None = None) -> tuple[int, socket.socket] | None:
        """A new child and the line to it; None when there can be none. Without an asker it is a spare.

        A child gets its asker over the line, and nowhere else.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                pid = os.fork()
            except OSError:
                ours.close()
                return None
            if pid == 0:
                try:
                    self._leave(ours, *([asker] if asker is not None else []))
                    self._act(theirs, asker is None)
                finally:
                    os._exit(0)
        return pid, ours

    def _leave(self, *lines: socket.socket) -> None:
        """In a child: without what is its parent's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (*lines, self._owner, self._ended, self._ending):
            each.close()


def _noted(number: int, frame: FrameType | None) -> None:
    """That a child ended is heard on the socket to which Python writes the number of a signal."""
