"""A session joined to this process: its input and output, its terminal and the size of that."""

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


def size_here() -> Size:
    """Of the terminal that this process runs in; the usual one where there is none."""
    found = shutil.get_terminal_size((80, 24))
    return Size(_bounded(found.lines), _bounded(found.columns))


def _bounded(count: int) -> int:
    return max(1, min(count, MAX_SIDE))


class Joined:
    """`tty`: keys go through as they are pressed, Ctrl-C too, and changes of size are told."""

    def __init__(self, session: Session, *, tty: bool, stdin: bool) -> None:
        self._session = session
        self._tty = tty
        self._stdin = stdin
        self._resized, self._resize = os.pipe()
        os.set_blocking(self._resize, False)

    def run(self) -> Over:
        """Returns when the session is over. KeyboardInterrupt is the caller's to take; the session ends with it."""
        with self._raw(), self._told_of_size():
            try:
                self._show()
            except BrokenPipeError:  # whoever read this has gone, and programs end of that
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
        """In a thread of its own: input, until its end, and changes of size."""
        source = sys.stdin.fileno() if self._stdin else None
        with contextlib.suppress(SessionOver, OSError):
            if source is None:
                self._session.end_input()
            while source is not None or self._tty:
                watched = [self._resized] if source is None else [self._resized, source]
                ready, _, _ = select.select(watched, [], [])
                if self._resized in ready:
                    os.read(self._resized, 4096)
                    self._session.resize(size_here())
                if source is not None and source in ready:
                    content = os.read(source, CHUNK)
                    if content:
                        self._session.write(content)
                    else:
                        self._session.end_input()
                        source = None

    @contextlib.contextmanager
    def _raw(self) -> Iterator[None]:
        """The terminal hands every key on; afterwards it is as it was."""
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
    def _told_of_size(self) -> Iterator[None]:
        if not self._tty:
            yield
            return
        before = signal.signal(signal.SIGWINCH, self._size_changed)
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)

    def _size_changed(self, number: int, frame: object) -> None:
        """Only a note: whoever is interrupted here may hold the session's lock."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._resize, b".")


def _write(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
