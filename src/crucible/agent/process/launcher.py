"""Start the user's process from a runner that has threads.

A process with threads must not run Python code between fork and exec: another thread may hold a lock that the child
would wait for forever. So the runner forks a child while it still has one thread; the child waits on a pipe for its
order and then becomes the user's process. Its pid is known, and on disk, before any of the user's code runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Callable

from crucible.agent.files import close_descriptors

OOM_SCORE = 500
"""Of 1000; most processes have 0."""
_OOM_SCORE = "/proc/self/oom_score_adj"
_MAX_ERROR = 4096


class CannotExecute(Exception):
    """The command cannot be executed. `code` is a shell's exit code: 127 if it is not found, 126 otherwise."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(frozen=True)
class Launcher:
    """The waiting child: `pid` leads its own session and process group."""

    pid: int
    _orders: int
    _errors: int

    @classmethod
    def prepare(cls, enter: Callable[[], None], output: int) -> Launcher:
        """Fork the child. `enter` runs in it just before the user's program; `output` becomes its stdout and
        stderr. The process must have no other threads."""
        orders_in, orders_out = os.pipe()
        errors_in, errors_out = os.pipe()
        ready_in, ready_out = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.write(ready_out, b".")
            _wait_for_order(orders_in, errors_out, output, enter)
        for descriptor in (orders_in, errors_out, ready_out):
            os.close(descriptor)
        os.read(ready_in, 1)  # wait for setsid: only then is `pid` a process group that can be signalled
        os.close(ready_in)
        return cls(pid, orders_out, errors_in)

    def launch(self, command: Sequence[str], folder: str, env: Mapping[str, str]) -> None:
        """Let the child execute the command, and wait until it has. Raises CannotExecute."""
        order = json.dumps({"command": list(command), "folder": folder, "env": dict(env)})
        with open(self._orders, "wb") as pipe:
            pipe.write(order.encode())
        check_executed(self._errors)

    def abandon(self) -> None:
        """Let the child exit without executing anything."""
        os.close(self._orders)
        os.close(self._errors)


def check_executed(errors: int) -> None:
    """Wait until the child has executed the command, and close the descriptor. Raises CannotExecute.

    The descriptor closes on exec, so an empty pipe means success.
    """
    with open(errors, "rb") as pipe:
        problem = pipe.read(_MAX_ERROR)
    if problem:
        code, _, text = problem.decode("utf-8", "replace").partition(" ")
        raise CannotExecute(int(code), text)


def _wait_for_order(orders: int, errors: int, output: int, enter: Callable[[], None]) -> None:
    """Wait for the order and execute it. Never returns: the child must not run the parent's code."""
    try:
        close_descriptors(frozenset({orders, errors, output}))
        with open(orders, "rb") as pipe:
            raw = pipe.read()
        if raw:
            _exec_user_order(json.loads(raw), errors, output, enter)
    finally:
        os._exit(0)


def _exec_user_order(order: Mapping[str, object], errors: int, output: int, enter: Callable[[], None]) -> None:
    def get_ready() -> None:
        devnull = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((devnull, 0), (output, 1), (output, 2)):
            os.dup2(source, target, inheritable=True)
        raise_oom_score()
        enter()

    exec_order(order, errors, get_ready)


def exec_order(order: Mapping[str, object], errors: int, get_ready: Callable[[], None]) -> None:
    """Execute the order after `get_ready`. Returns only on failure, with the reason written to `errors`."""
    command = [str(word) for word in order["command"]]  # type: ignore[attr-defined]
    env = {str(name): str(value) for name, value in dict(order["env"]).items()}  # type: ignore[call-overload]
    try:
        os.chdir(str(order["folder"]))
        _restore_signals()
        get_ready()
        os.execvpe(command[0], command, env)  # noqa: S606  a shell would change the command
    except OSError as error:
        code = 127 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 126
        os.write(errors, f"{code} cannot run {command[0]!r}: {error.strerror}".encode()[:_MAX_ERROR])
    except BaseException as error:  # noqa: BLE001  report any error
        os.write(errors, f"126 cannot start the process: {error!r}".encode()[:_MAX_ERROR])


def raise_oom_score() -> None:
    """Have the kernel kill this process before the agent if the machine runs out of memory."""
    with contextlib.suppress(OSError, ValueError), open(_OOM_SCORE, "r+", encoding="ascii") as file:
        wanted = max(int(file.read()), OOM_SCORE)
        file.seek(0)
        file.write(str(wanted))


def exec_session_command(arguments: Sequence[str]) -> int:
    """Execute the command of a session in this process. Return an exit code if that fails, or no order comes.

    Arguments are the descriptors `orders` and `errors`, and the path of a terminal or an empty string. A session starts
    while the runner has threads, so this runs in a new interpreter, which waits until it is under the job's limits.
    """
    orders, errors, tty = int(arguments[0]), int(arguments[1]), arguments[2]
    os.set_inheritable(errors, False)
    with open(orders, "rb") as pipe:
        raw = pipe.read()
    if raw:
        exec_order(json.loads(raw), errors, lambda: _open_terminal(tty))
    return 126


def _open_terminal(tty: str) -> None:
    if tty:
        # This process leads its session: the first terminal that it opens becomes its controlling terminal.
        terminal = os.open(tty, os.O_RDWR)
        with contextlib.suppress(OSError):
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for target in (0, 1, 2):
            os.dup2(terminal, target, inheritable=True)
        if terminal > 2:
            os.close(terminal)
    raise_oom_score()


def _restore_signals() -> None:
    """Restore default signal handling: Python ignores some signals, the runner more, and exec keeps ignored ones."""
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError, RuntimeError):
                continue
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    sys.stdout = sys.stderr = None  # the parent's buffers must not be flushed into the job's output
