"""Answering: what a child does. It reads a program within its bounds and says what it learned.

Whoever may ask again finds it at rest, with its memory at hand: the next program costs him neither a fork nor pages.
"""

from __future__ import annotations

import gc
import resource
import socket
import sys
import time

from crucible.analysis.analyse import analyse
from crucible.analysis.asking import (
    ANSWERED,
    AT_REST,
    MAX_QUESTION,
    NO_ROOM,
    TAKEN,
    Answer,
    answers,
    questions,
    receive,
    send,
)
from crucible.analysis.bounds import Bounds, allow, confine
from crucible.analysis.preparing import prepared

REST = 60.0
"""Seconds to wait for the next question of the same asker."""


def take(line: socket.socket, early: bool, bounds: Bounds, idle: float) -> None:
    """The asker comes over the line. `early`: there is time to prepare before."""
    held = prepared(line) if early else []
    with line:
        word, given, _, _ = socket.recv_fds(line, 1, 1)
    if word:
        _serve(socket.socket(fileno=given[0]), bounds, min(REST, idle), held)


def _serve(asker: socket.socket, bounds: Bounds, rest: float, held: list[bytes]) -> None:
    """Until the asker has gone, or it is better to begin anew. What is held keeps memory at hand, to its end."""
    asker.sendall(TAKEN)
    confine(bounds)
    while _answered(asker) and not is_worn(bounds):
        allow(0, rest)
        gc.collect()
        held = held or prepared(asker)
        asker.sendall(AT_REST)
        if not asker.recv(1):
            return
        allow(bounds.seconds, bounds.patience)
        asker.sendall(TAKEN)


def _answered(asker: socket.socket) -> bool:
    """Whether another question may follow."""
    try:
        task = questions().validate_json(receive(asker, MAX_QUESTION))
        send(asker, ANSWERED + answers().dump_json(Answer(analyse(task.sources, task.reference))))
    except MemoryError:
        send(asker, NO_ROOM)
        return False
    return task.more


def is_worn(bounds: Bounds) -> bool:
    """What took much memory may leave it in pieces, and limits on processor time cannot be set back."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return most > bounds.memory / 2 or time.process_time() > bounds.life
