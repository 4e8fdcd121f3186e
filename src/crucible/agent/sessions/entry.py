"""What a session's command is before it becomes it: a process alone, without threads, that waits for its order."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import termios
from collections.abc import Sequence

from crucible.agent.process.launcher import exec_order, raise_oom_score


def main(arguments: Sequence[str]) -> int:
    """Become the command that comes by `orders`; returns the exit code where that fails or none comes.

    `orders` and `errors` are descriptors, `tty` the name of a terminal or empty.
    """
    orders, errors, tty = int(arguments[0]), int(arguments[1]), arguments[2]
    os.set_inheritable(errors, False)
    with open(orders, "rb") as pipe:
        raw = pipe.read()
    if raw:
        exec_order(json.loads(raw), errors, lambda: _get_ready(tty))
    return 126


def _get_ready(tty: str) -> None:
    if tty:
        # This process leads its session: the first terminal that it opens is the one that controls it.
        terminal = os.open(tty, os.O_RDWR)
        with contextlib.suppress(OSError):
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for target in (0, 1, 2):
            os.dup2(terminal, target, inheritable=True)
        if terminal > 2:
            os.close(terminal)
    raise_oom_score()
