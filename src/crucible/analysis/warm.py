"""The warm process as its owner sees it: started when it is needed, replaced when it is gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading

from crucible.analysis.bounds import Bounds

ENDING = 5.0
"""Seconds it has to end by itself."""


class Warm:
    """Safe to use from several threads at once."""

    def __init__(self, bounds: Bounds, idle: float) -> None:
        self._bounds = bounds
        self._idle = idle
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """None while there is none."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def hand_over(self, asker: socket.socket) -> bool:
        """Whether there is somebody to take it; that it was taken, the taker tells."""
        with self._lock:
            if self._closed:
                return False
            if self._line is None or self.pid is None:
                self._start()
            return self._sent(asker)

    def _sent(self, asker: socket.socket) -> bool:
        assert self._line is not None
        try:
            socket.send_fds(self._line, [b"?"], [asker.fileno()])
        except OSError:
            self._forget()
            return False
        return True

    def _start(self) -> None:
        self._forget()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _code(theirs.fileno(), self._bounds, self._idle)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={},
                cwd="/",
                start_new_session=True,
            )
        ours.settimeout(ENDING)
        self._line = ours
        # Waits for its end, so that none is left as a zombie when it ends for want of work.
        threading.Thread(target=self._process.wait, name="warm reader's end", daemon=True).start()

    def _forget(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def close(self) -> None:
        """Ends it and everything it does; a second time changes nothing."""
        with self._lock:
            self._closed = True
            self._forget()
            process = self._process
        if process is None:
            return
        try:
            process.wait(ENDING)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _code(descriptor: int, bounds: Bounds, idle: float) -> str:
    path = [each for each in sys.path if each]
    return (
        f"import sys; sys.path[:0] = {path!r}\n"
        "from crucible.analysis.bounds import Bounds\n"
        "from crucible.analysis.forking import serve\n"
        f"serve({descriptor}, {bounds!r}, {idle!r})"
    )
