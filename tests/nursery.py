"""Servers of fault tests, forked from a process that has loaded already what a server loads.

A start costs a quarter of what a new interpreter takes, and these tests start hundreds. Each is a process of its own
all the same, with its own environment and output, and dies like any other. How a new interpreter starts, how long it
takes and what others see of it (its command line and first environment) is for tests that start one.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO, NoReturn

LOADED = (
    "crucible.app",
    "crucible.backends.local.backend",
    "crucible.backends.rehearsal.backend",
    "crucible.control.compose",
    "crucible.control.crashpoints",
    "crucible.control.db.filesystem",
    "crucible.server.agents",
    "crucible.server.api",
    "crucible.server.home",
    "crucible.server.journal",
    "crucible.server.listen",
    "crucible.server.reach",
    "psycopg",
    "uv",
)
LONGEST = 1024 * 1024
LOAD_SECONDS = 120


class Forked:
    """A server that was forked, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"server {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._handle], [], [], seconds)[0]:
            self.returncode = self._nursery.code_of(self.pid)
            os.close(self._handle)
        return self.returncode


class Nursery:
    """The process they are forked from; it ends with the one that made it."""

    def __init__(self) -> None:
        self._line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.settimeout(LOAD_SECONDS)
        with far:
            command = [sys.executable, "-m", __name__, str(far.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[far.fileno()], stdin=subprocess.DEVNULL)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()
        self._process.wait(LOAD_SECONDS)

    def fork(self, arguments: Sequence[str], env: Mapping[str, str], log: BinaryIO) -> Forked:
        """`python -m crucible.app` with these arguments and this environment, and no other; it writes to `log`."""
        asked = json.dumps({"arguments": arguments, "env": dict(env), "cwd": os.getcwd()}).encode()
        socket.send_fds(self._line, [asked], [log.fileno()])
        return Forked(self, int(self._line.recv(LONGEST)))

    def code_of(self, pid: int) -> int:
        """The exit code of one that has ended, negative for the signal that ended it."""
        self._line.send(json.dumps({"ended": pid}).encode())
        return int(self._line.recv(LONGEST))


def serve(line: socket.socket) -> int:
    """Forks on request until the line is closed. Returns in every fork, with the exit code of its server."""
    for module in LOADED:
        importlib.import_module(module)
    alone = len(os.listdir("/proc/self/task"))
    assert alone == 1, f"{alone} threads: a fork has one"
    gc.collect()
    gc.freeze()
    while True:
        said, given, _, _ = socket.recv_fds(line, LONGEST, 1)
        if not said:
            return 0
        asked = json.loads(said)
        if "ended" in asked:
            line.send(str(os.waitstatus_to_exitcode(os.waitpid(asked["ended"], 0)[1])).encode())
            continue
        pid = os.fork()
        if pid == 0:
            line.close()
            _become_server(given[0], **asked)
        os.close(given[0])
        line.send(str(pid).encode())


def _become_server(log: int, arguments: Sequence[str], env: Mapping[str, str], cwd: str) -> NoReturn:
    from crucible.app import leave_soon, main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.argv = ["crucible.app", *arguments]
    sys.exit(main(leave=leave_soon))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for whoever made us, and ends us through it
    sys.exit(serve(socket.socket(fileno=int(sys.argv[1]))))
