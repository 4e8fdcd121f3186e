"""The owner's side: sends a program to a child of the worker process and returns its profile."""

from __future__ import annotations

import os
import socket
import threading
import time
from types import TracebackType

from pydantic import ValidationError

from crucible.analysis.conclusions.compute.runtime import T4, Reference
from crucible.analysis.process.child import Limits, MiB
from crucible.analysis.process.launcher import WorkerProcess
from crucible.analysis.process.protocol import (
    MAX_RESPONSE,
    OUT_OF_MEMORY,
    PROFILE,
    STARTED,
    Request,
    receive,
    requests,
    responses,
    send,
)
from crucible.analysis.source.sources import Sources
from crucible.core.routing.profile import Conclusion, Entrypoint, Profile

DEFAULT_LIMITS = Limits()
MAX_CONCURRENT = 4
IDLE_SECONDS = 300.0

QUEUE_SECONDS = 30.0
"""How long a request waits for a slot while `MAX_CONCURRENT` others run."""

START_SECONDS = 20.0
"""How long the worker may take to load the analysis and fork a child."""

START_ATTEMPTS = 3

GRACE_SECONDS = 1.0
"""How much longer than the child's own limit to wait for its answer."""

_QUESTION = "What does it need? It could not be analysed."


class AnalysisWorker:
    """Analyses each program in a child process of its own, at most `max_concurrent` at the same time.

    The worker process that forks the children is started by the first request, and again if it has ended. It ends with
    its owner, however that ends, and after `idle_seconds` without a request. Safe to use from several threads.
    """

    def __init__(
        self,
        limits: Limits = DEFAULT_LIMITS,
        max_concurrent: int = MAX_CONCURRENT,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._limits = limits
        self._process = WorkerProcess(limits, idle_seconds)
        self._slots = threading.BoundedSemaphore(max_concurrent)

    @property
    def pid(self) -> int | None:
        """The process id of the worker, or None if it is not running."""
        return self._process.pid

    def profile(self, sources: Sources, reference: Reference = T4) -> Profile:
        """Return the program's profile, or one whose notes say why it is unknown. Blocks: call it off the event loop.

        Raises BadInput if the entry is not among the files.
        """
        sources.check()
        if not hasattr(os, "fork"):
            return unknown_profile(sources, "This system cannot limit the process that would analyse it.")
        if not self._slots.acquire(timeout=QUEUE_SECONDS):
            return unknown_profile(sources, "Too many programs are being analysed at the same time.")
        try:
            return self._profile(Request(sources, reference))
        finally:
            self._slots.release()

    def _profile(self, request: Request) -> Profile:
        message = requests().dump_json(request)
        requested = time.monotonic()  # the child's own clock starts before we hear that it has started
        child = self._start_child()
        if child is None:
            return unknown_profile(request.sources, "No process could be started to analyse it.")
        with child:
            answer = _exchange(child, message, time.monotonic() + self._limits.wall_seconds + GRACE_SECONDS)
            seconds = time.monotonic() - requested
        if answer[:1] != PROFILE or len(answer) > MAX_RESPONSE:
            return unknown_profile(request.sources, self._failure(answer, seconds))
        try:
            return responses().validate_json(answer[1:]).profile
        except ValidationError as error:
            why = f"The analysis process sent an invalid profile: {error.errors()[0]['msg']}."
            return unknown_profile(request.sources, why)

    def _start_child(self) -> socket.socket | None:
        """Return the connection to a new child, or None if no child reported that it started."""
        for _ in range(START_ATTEMPTS):
            child = self._process.connect()
            if child is None:
                continue
            if _started(child):
                return child
            child.close()
        return None

    def _failure(self, answer: bytes, seconds: float) -> str:
        """Return why there is no profile: `answer` is what the child sent in `seconds`, if anything."""
        if answer == OUT_OF_MEMORY:
            return f"The analysis needed more than {self._limits.memory_bytes / MiB:g} MiB of memory."
        if answer:
            return f"Its profile is larger than {MAX_RESPONSE / MiB:g} MiB."
        if seconds >= min(self._limits.cpu_seconds, self._limits.wall_seconds):
            return f"The analysis took longer than {self._limits.cpu_seconds:g} s."
        return f"The analysis process died; it may need more than {self._limits.memory_bytes / MiB:g} MiB."

    def close(self) -> None:
        """End the processes; open and later requests get no profile. Idempotent."""
        self._process.close()

    def __enter__(self) -> AnalysisWorker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def analyse_isolated(sources: Sources, limits: Limits = DEFAULT_LIMITS, reference: Reference = T4) -> Profile:
    """Analyse one program in processes that are gone afterwards. For several programs keep an `AnalysisWorker`."""
    with AnalysisWorker(limits) as worker:
        return worker.profile(sources, reference)


def unknown_profile(sources: Sources, why: str) -> Profile:
    """Return a profile in which nothing is known but the kind of program, with the reason in its notes."""
    kind = Entrypoint.NOTEBOOK if sources.entry.endswith(".ipynb") else Entrypoint.SCRIPT
    return Profile(
        gpu=Conclusion(question=_QUESTION, why=why),
        gpu_memory_gb=Conclusion(question=_QUESTION, why=why),
        runtime_hours=Conclusion(question=_QUESTION, why=why),
        entrypoint=Conclusion(kind),
        notes=(f"{sources.entry}: {why}",),
    )


def _started(child: socket.socket) -> bool:
    """Return whether the child reported in time that it started."""
    child.settimeout(START_SECONDS)
    try:
        return child.recv(1) == STARTED
    except OSError:
        return False


def _exchange(child: socket.socket, message: bytes, deadline: float) -> bytes:
    """Return the child's answer, empty if none came in time."""
    child.settimeout(max(0.001, deadline - time.monotonic()))
    try:
        send(child, message)
        return receive(child, MAX_RESPONSE, deadline)
    except OSError:
        return b""
