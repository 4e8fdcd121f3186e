"""A terminal attached to a session inside a job: input, output and window size."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator

from crucible.client.transport.sessions import Session, SessionOver
from crucible.wire.http.sessions import CHUNK, MAX_SIDE, FrameKind, Over, Size


def terminal_size() -> Size:
    """Return the size of this process's terminal (default: 24 x 80)."""
    size = shutil.get_terminal_size((80, 24))
    return Size(_bounded(size.lines), _bounded(size.columns))


def _bounded(count: int) -> int:
    return max(1, min(count, MAX_SIDE))


class AttachedTerminal:
    """Connects this process's input and output to a session.

    With `tty` every key is passed on as it is pressed, Ctrl-C too, and so are changes of size.
    """

    def __init__(self, session: Session, *, tty: bool, stdin: bool) -> None:
        self._session = session
        self._tty = tty
        self._stdin = stdin
        self._resized, self._resize = os.pipe()
        os.set_blocking(self._resize, False)

    def run(self) -> Over:
        """Return when the session is over. KeyboardInterrupt is left to the caller; it ends the session."""
        with self._raw(), self._watch_size():
            try:
                self._show()
            except BrokenPipeError:  # the reader of our output has gone: end as a program does
                return Over(signal=signal.SIGPIPE)
        assert self._session.over is not None
        return self._session.over

    def _show(self) -> None:
        for kind, content in self._session.frames():
            if kind is FrameKind.READY:
                threading.Thread(target=self._feed, name="crucible-input", daemon=True).start()
            elif kind is FrameKind.DATA:
                _write(sys.stdout.fileno(), content)
            elif kind is FrameKind.ERROR_DATA:
                _write(sys.stderr.fileno(), content)

    def _feed(self) -> None:
        """Send input, until its end, and changes of size. Runs in a thread of its own."""
        source = sys.stdin.fileno() if self._stdin else None
        with contextlib.suppress(SessionOver, OSError):
            if source is None:
                self._session.end_input()
            while source is not None or self._tty:
                watched = [self._resized] if source is None else [self._resized, source]
                ready, _, _ = select.select(watched, [], [])
                if self._resized in ready:
                    os.read(self._resized, 4096)
                    self._session.resize(terminal_size())
                if source is not None and source in ready:
                    content = os.read(source, CHUNK)
                    if content:
                        self._session.write(content)
                    else:
                        self._session.end_input()
                        source = None

    @contextlib.contextmanager
    def _raw(self) -> Iterator[None]:
        """Pass every key on while inside; restore the terminal afterwards."""
        if not (self._tty and self._stdin and sys.stdin.isatty()):
            yield
            return
        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
        tty.setraw(number)
        try:
            yield
        finally:
            termios.tcsetattr(number, termios.TCSADRAIN, before)

    @contextlib.contextmanager
    def _watch_size(self) -> Iterator[None]:
        if not self._tty:
            yield
            return
        before = signal.signal(signal.SIGWINCH, self._size_changed)
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)

    def _size_changed(self, number: int, frame: object) -> None:
        """Only wake the sender: the code this signal interrupts may hold the session's lock."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._resize, b".")


def _write(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
