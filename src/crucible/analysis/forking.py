"""The warm process: it has analysis loaded, and forks a child for each program.

A child has one socket, its own, and whatever the program does to it ends with it. The warm process never reads
a program, an answer or anything else but the descriptors that its owner sends.
"""

from __future__ import annotations

import gc
import os
import signal
import socket

from crucible.analysis.analyse import analyse
from crucible.analysis.asking import ANSWERED, NO_ROOM, TAKEN, Answer, Question, answers, questions
from crucible.analysis.bounds import Bounds, confine
from crucible.analysis.conclusions.runtime import T4
from crucible.analysis.sources import Sources

_SOUND = "import torch\nmodèle = torch.nn.Linear(2, 2)\n".encode()  # names beyond ASCII have Python load a module
_BROKEN = b"import torch\nmodel = = torch.nn.Linear(2, 2)\nfor x in\n"
_PIECE = 2**18


def serve(descriptor: int, bounds: Bounds, idle: float) -> None:
    """Until the owner is gone, which ends the children too, or has asked nothing for `idle` seconds."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that ended leave nothing behind
    owner = socket.socket(fileno=descriptor)
    owner.settimeout(idle)
    _warm_up()
    while (asker := _next(owner)) is not None:
        with asker:
            _fork(owner, asker, bounds)


def _warm_up() -> None:
    """Loads what a first question would load. A child ends before collecting its garbage would pay."""
    for code in (_SOUND, _BROKEN):
        asked = questions().dump_json(Question(Sources({"a.py": code}, "a.py"), T4))
        task = questions().validate_json(asked)
        answers().dump_json(Answer(analyse(task.sources, task.reference)))
    gc.collect()
    gc.freeze()
    gc.disable()


def _next(owner: socket.socket) -> socket.socket | None:
    try:
        word, given, _, _ = socket.recv_fds(owner, 1, 1)
    except TimeoutError:
        return None
    if not word:
        os.killpg(0, signal.SIGKILL)  # a session of its own: itself and its children
    return socket.socket(fileno=given[0])


def _fork(owner: socket.socket, asker: socket.socket, bounds: Bounds) -> None:
    try:
        child = os.fork()
    except OSError:
        return  # the asker sees that nobody took it
    if child == 0:
        try:
            owner.close()
            _read(asker, bounds)
        finally:
            os._exit(0)


def _read(asker: socket.socket, bounds: Bounds) -> None:
    asker.sendall(TAKEN)
    confine(bounds)
    try:
        task = questions().validate_json(_whole(asker))
        asker.sendall(ANSWERED + answers().dump_json(Answer(analyse(task.sources, task.reference))))
    except MemoryError:
        asker.sendall(NO_ROOM)


def _whole(asker: socket.socket) -> bytes:
    pieces = bytearray()
    while piece := asker.recv(_PIECE):
        pieces += piece
    return bytes(pieces)
