"""Fork servers, commands and hosts for tests from a process that has already imported their modules.

A start costs a tenth of what a new interpreter takes, and tests start hundreds. Each is a process of its own all the
same, with its own environment, folder and streams, and dies like any other. How a new interpreter starts, how long it
takes and what others see of it (its command line and first environment) is for tests that start one.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import BinaryIO, NoReturn

SERVER = "crucible.app"
COMMAND = "crucible"
HOST = "crucible.agent"
LOADED = {
    SERVER: (
        "crucible.app",
        "crucible.backends.local.backend",
        "crucible.backends.rehearsal.backend",
        "crucible.control.runtime.compose",
        "crucible.control.reconcile.crashpoints",
        "crucible.control.db.sqlite.filesystem",
        "crucible.server.agents.api",
        "crucible.server.api",
        "crucible.server.state_folder",
        "crucible.server.http.server_log",
        "crucible.server.http.listen",
        "crucible.server.security.exposure",
        "psycopg",
        "pynvml",
        "tomllib",
        "uv",
        "uvicorn.lifespan.off",
        "uvicorn.protocols.http.h11_impl",
        "uvicorn.protocols.websockets.websockets_sansio_impl",
    ),
    COMMAND: ("crucible.cli", "crucible.client", "rich.console", "rich.table"),
    HOST: ("crucible.agent.__main__",),
}
"""Entry functions, by the program's name for `python -m`."""
WHOLE = frozenset({"crucible.cli", "crucible.client"})
"""Packages that are imported with all their modules."""
LONGEST = 1024 * 1024
LOAD_SECONDS = 120


class Forked:
    """A forked process, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, fork_server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._fork_server = fork_server
        self._handle = os.pidfd_open(pid)
        weakref.finalize(self, os.close, self._handle)
        self._asking = threading.Lock()

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
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
            with self._asking:  # its parent can tell the code once
                if self.returncode is None:
                    self.returncode = self._fork_server.code_of(self.pid)
        return self.returncode


class ForkServer:
    """The process that forks on request; it ends with its parent."""

    def __init__(self, program: str) -> None:
        self._line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.settimeout(LOAD_SECONDS)
        self._talking = threading.Lock()
        with far:
            command = [sys.executable, "-m", __name__, program, str(far.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[far.fileno()], stdin=subprocess.DEVNULL)

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()
        self._process.wait(LOAD_SECONDS)

    def fork(
        self, arguments: Sequence[str], env: Mapping[str, str], streams: Sequence[BinaryIO], cwd: str | None = None
    ) -> Forked:
        """Start the program with these arguments, exactly this environment, and these three streams."""
        asked = json.dumps({"arguments": arguments, "env": dict(env), "cwd": str(cwd or os.getcwd())}).encode()
        with self._talking:
            socket.send_fds(self._line, [asked], [stream.fileno() for stream in streams])
            pid = int(self._line.recv(LONGEST))
        return Forked(self, pid)

    def run(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        seconds: float,
        input: str | None = None,
        cwd: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run the program like `subprocess.run` with `capture_output` and `text`."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write((input or "").encode())
            given.seek(0)
            process = self.fork(arguments, env, (given, out, err), cwd)
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            return subprocess.CompletedProcess(arguments, code, _text(out), _text(err))

    def code_of(self, pid: int) -> int:
        """Return the exit code of an ended process, negative for a signal."""
        with self._talking:
            self._line.send(json.dumps({"ended": pid}).encode())
            return int(self._line.recv(LONGEST))


def _text(written: BinaryIO) -> str:
    """Decode output, with line ends as in text mode."""
    written.seek(0)
    return written.read().decode().replace("\r\n", "\n").replace("\r", "\n")


def for_interpreters(env: Mapping[str, str]) -> bool:
    """Return whether the environment has variables that only a new interpreter reads, which a fork would ignore."""
    changed = {name for name, value in env.items() if os.environ.get(name) != value}
    return any(name.startswith(("LANG", "LC_", "LD_", "PYTHON")) for name in changed)


def load(program: str) -> None:
    for name in LOADED[program]:
        module = importlib.import_module(name)
        if name in WHOLE:
            for found in pkgutil.walk_packages(module.__path__, f"{name}."):
                importlib.import_module(found.name)
    gc.collect()
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads: a fork has one"


def serve(program: str, line: socket.socket) -> int:
    """Fork on request until the connection is closed; does not return in a fork."""
    load(program)
    while True:
        said, streams, _, _ = socket.recv_fds(line, LONGEST, 3)
        if not said:
            return 0
        asked = json.loads(said)
        if "ended" in asked:
            line.send(str(os.waitstatus_to_exitcode(os.waitpid(asked["ended"], 0)[1])).encode())
            continue
        pid = os.fork()
        if pid == 0:
            line.close()
            _become(program, streams, **asked)
        for stream in streams:
            os.close(stream)
        line.send(str(pid).encode())


def _become(
    program: str, streams: Sequence[int], arguments: Sequence[str], env: Mapping[str, str], cwd: str
) -> NoReturn:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.argv = [program, *arguments]
    if program == SERVER:
        from crucible.app import exit_soon, main

        _end(main(leave=exit_soon))
    if program == HOST:
        from crucible.agent.__main__ import main as be_agent

        os.setsid()  # as every host has its own
        _end(be_agent(arguments))
    from crucible.cli.main import run

    _end(run(arguments))


def _end(code: int) -> NoReturn:
    """End the process without the exit handlers of its parent."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for whoever made us, and ends us through it
    sys.exit(serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))))
