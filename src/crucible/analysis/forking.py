"""The warm process: it has analysis loaded, and forks a child for each asker.

A child has one socket, its own, and whatever a program does to it ends with it. The warm process never reads
a program, an answer or anything else but the descriptors that its owner sends.
"""

from __future__ import annotations

import gc
import os
import signal
import socket

from crucible.analysis.analyse import analyse
from crucible.analysis.answering import take
from crucible.analysis.asking import Answer, Question, answers, questions
from crucible.analysis.bounds import Bounds
from crucible.analysis.children import Children
from crucible.analysis.conclusions.runtime import T4
from crucible.analysis.sample import SAMPLE
from crucible.analysis.sources import Sources

_BROKEN = b"import torch\nmodel = = torch.nn.Linear(2, 2)\nfor x in\n"
_READINGS = 4
"""After so many, Python has made faster what most programs need."""


def serve(descriptor: int, bounds: Bounds, idle: float) -> None:
    """Until the owner is gone, which ends the children too, or has had no use for it or them for `idle` seconds."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    owner = socket.socket(fileno=descriptor)
    _warm_up()
    children = Children(owner, lambda line, early: take(line, early, bounds, idle))
    while children.asked(idle):
        children.hand_over(_next(owner))


def _warm_up() -> None:
    """Loads what a first question would load. A child collects its garbage after its answer, if at all."""
    for code in (_BROKEN, *[SAMPLE.encode()] * _READINGS):
        asked = questions().dump_json(Question(Sources({"a.py": code}, "a.py"), T4))
        task = questions().validate_json(asked)
        answers().dump_json(Answer(analyse(task.sources, task.reference)))
    gc.collect()
    gc.freeze()
    gc.disable()


def _next(owner: socket.socket) -> socket.socket:
    word, given, _, _ = socket.recv_fds(owner, 1, 1)
    if not word:
        os.killpg(0, signal.SIGKILL)  # a session of its own: itself and its children
    return socket.socket(fileno=given[0])
