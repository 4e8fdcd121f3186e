"""The worker process as its owner handles it: started on demand, replaced if it died, ended with its children."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading

from crucible.analysis.process.child import Limits

END_SECONDS = 5.0
"""How long the worker may take to end by itself, or to receive a socket."""


class WorkerProcess:
    """The owner's handle on the worker process. Safe to use from several threads."""

    def __init__(self, limits: Limits, idle_seconds: float) -> None:
        self._limits = limits
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id of the worker, or None if it is not running."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def connect(self) -> socket.socket | None:
        """Return a connection whose other end the worker hands to a new child; None if it cannot be reached."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            if self._closed or not self._send(theirs):
                ours.close()
                return None
        return ours

    def _send(self, connection: socket.socket) -> bool:
        """Send the connection to the worker, started if needed. Return whether that worked."""
        try:
            if self._control is None or self.pid is None:
                self._control = self._start()
            socket.send_fds(self._control, [b"?"], [connection.fileno()])
        except OSError:
            self._disconnect()
            return False
        return True

    def _start(self) -> socket.socket:
        """Start the worker, and return the socket to control it."""
        self._disconnect()
        ours, theirs = socket.socketpair()
        ours.settimeout(END_SECONDS)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", self._code(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={},
                cwd="/",
                start_new_session=True,
            )
        # Waits for the worker, so that it does not stay a zombie after it ends for lack of requests.
        threading.Thread(target=self._process.wait, name="analysis-worker-wait", daemon=True).start()
        return ours

    def _code(self, descriptor: int) -> str:
        """Return the program that the worker process runs."""
        path = [entry for entry in sys.path if entry]
        return (
            f"import sys; sys.path[:0] = {path!r}\n"
            "from crucible.analysis.process.child import Limits\n"
            "from crucible.analysis.process.worker import serve\n"
            f"serve({descriptor}, {self._limits!r}, {self._idle_seconds!r})"
        )

    def _disconnect(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None

    def close(self) -> None:
        """End the worker and its children; it is not started again. Idempotent."""
        with self._lock:
            self._closed = True
            self._disconnect()
            process = self._process
        if process is None:
            return
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
