"""Reader: profiles of programs, read in processes that are ended when they take too long or too much.

A program to be read may be made to be hard to read. Whatever it does to its reader happens there.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Hashable
from types import TracebackType

from pydantic import ValidationError

from crucible.analysis.asking import (
    ANSWERED,
    KNOCK,
    MAX_ANSWER,
    NO_ROOM,
    TAKEN,
    Question,
    answers,
    questions,
    receive,
    send,
)
from crucible.analysis.bounds import USUAL, Bounds, MiB
from crucible.analysis.conclusions.runtime import T4, Reference
from crucible.analysis.lines import Lines
from crucible.analysis.sources import Sources
from crucible.analysis.warm import Warm
from crucible.core.profile import Conclusion, Entrypoint, Profile

AT_ONCE = 4
IDLE = 300.0
TURN = 30.0
"""Seconds to wait for one of the places."""

STARTING = 20.0
"""Seconds for the warm process to load and take a question."""

KNOCKING = 1.0
"""Seconds for a child at rest to take the next one."""

TRIES = 3
_GRACE = 1.0
"""Beyond the patience that the child has with itself."""

_ASK = "What does it need? It could not be read."


class Reader:
    """Quick from the second program on: the process that forks is kept warm, for `idle` seconds without work.

    It is started by the first question and again when it has died. Safe to use from several threads; `at_once`
    programs are read at the same time, further ones wait, and as many children are kept for those who asked last. Its
    processes end with their owner, however that ends.
    """

    def __init__(self, bounds: Bounds = USUAL, at_once: int = AT_ONCE, idle: float = IDLE) -> None:
        self._bounds = bounds
        self._warm = Warm(bounds, idle)
        self._lines = Lines(at_once)
        self._turns = threading.BoundedSemaphore(at_once)

    @property
    def pid(self) -> int | None:
        """Of the warm process, None while there is none."""
        return self._warm.pid

    def profile(self, sources: Sources, reference: Reference = T4, whose: Hashable = None) -> Profile:
        """The profile, or one that says why there is none. Blocks: call it off the event loop.

        What has read a program reads the next one of the same asker, if he is named by `whose`, which is quicker, and
        nobody else's.
        """
        sources.check()
        if not hasattr(os, "fork"):
            return unread(sources, "This system cannot end a reader that takes too much, so none was started.")
        if not self._turns.acquire(timeout=TURN):
            return unread(sources, "Too many programs are being read at the same time.")
        try:
            return self._asked(Question(sources, reference, more=whose is not None), whose)
        finally:
            self._turns.release()

    def _asked(self, question: Question, whose: Hashable) -> Profile:
        asked = questions().dump_json(question)
        kept = self._kept_line(whose)
        line = kept or self._new_line()
        if line is None:
            return unread(question.sources, "No process could be started to read it.")
        begun = time.monotonic()
        answer = _exchanged(line, asked, begun + self._bounds.patience + _GRACE)
        if answer[:1] == ANSWERED and len(answer) <= MAX_ANSWER:
            return self._understood(question, answer[1:], line, whose)
        line.close()
        if answer == NO_ROOM and kept is not None:
            return self._asked(question, whose)  # what others have left of its memory says nothing about the program
        return unread(question.sources, self._why(answer, time.monotonic() - begun))

    def _understood(self, question: Question, answer: bytes, line: socket.socket, whose: Hashable) -> Profile:
        """Who makes sense may be asked again."""
        try:
            profile = answers().validate_json(answer).profile
        except ValidationError as error:
            line.close()
            return unread(question.sources, f"What was read of it makes no sense: {error.errors()[0]['msg']}.")
        if question.more:
            self._lines.keep(whose, line)
        else:
            line.close()
        return profile

    def _kept_line(self, whose: Hashable) -> socket.socket | None:
        while line := self._lines.take(whose):
            if _opened(line):
                return line
            line.close()
        return None

    def _new_line(self) -> socket.socket | None:
        for _ in range(TRIES):
            ours, theirs = socket.socketpair()
            taken = False
            try:
                with theirs:
                    sent = self._warm.hand_over(theirs)
                taken = sent and _taken(ours, STARTING)
            finally:
                if not taken:
                    ours.close()
            if taken:
                return ours
        return None

    def _why(self, answer: bytes, taken: float) -> str:
        if answer == NO_ROOM:
            return f"Reading it took more than {self._bounds.memory / MiB:g} MiB."
        if answer:
            return f"What was read of it is more than {MAX_ANSWER / MiB:g} MiB."
        if taken >= min(self._bounds.seconds, self._bounds.patience):
            return f"Reading it took longer than {self._bounds.seconds:g} s."
        return f"Its reader broke down, most likely for want of more than {self._bounds.memory / MiB:g} MiB."

    def close(self) -> None:
        """Ends the processes; questions that are open or come later get no answer. Idempotent."""
        self._warm.close()
        self._lines.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def analyse_within(sources: Sources, bounds: Bounds = USUAL, reference: Reference = T4) -> Profile:
    """One program read by a reader of its own, which is gone afterwards. Who has more of them keeps a `Reader`."""
    with Reader(bounds) as reader:
        return reader.profile(sources, reference)


def unread(sources: Sources, why: str) -> Profile:
    kind = Entrypoint.NOTEBOOK if sources.entry.endswith(".ipynb") else Entrypoint.SCRIPT
    return Profile(
        gpu=Conclusion(question=_ASK, why=why),
        gpu_memory_gb=Conclusion(question=_ASK, why=why),
        runtime_hours=Conclusion(question=_ASK, why=why),
        entrypoint=Conclusion(kind),
        notes=(f"{sources.entry}: {why}",),
    )


def _opened(line: socket.socket) -> bool:
    """Whether the child is still there, and takes a question; its rest may just have been over."""
    try:
        line.settimeout(KNOCKING)
        line.sendall(KNOCK)
    except OSError:
        return False
    return _taken(line, KNOCKING)


def _taken(line: socket.socket, seconds: float) -> bool:
    line.settimeout(seconds)
    try:
        return line.recv(1) == TAKEN
    except OSError:
        return False


def _exchanged(line: socket.socket, question: bytes, deadline: float) -> bytes:
    """The answer; nothing where none came in time."""
    line.settimeout(max(0.001, deadline - time.monotonic()))
    try:
        send(line, question)
        return receive(line, MAX_ANSWER, deadline)
    except OSError:
        return b""
