"""The child process: limits itself, analyses one program, sends the profile and ends."""

from __future__ import annotations

import math
import resource
import signal
import socket
from dataclasses import dataclass

from crucible.analysis.analyse import analyse
from crucible.analysis.process.protocol import (
    MAX_REQUEST,
    OUT_OF_MEMORY,
    PROFILE,
    STARTED,
    Response,
    receive,
    requests,
    responses,
    send,
)

MiB = 2**20


@dataclass(frozen=True)
class Limits:
    """What a child may use: seconds of CPU time, seconds of wall-clock time, bytes of address space."""

    cpu_seconds: float = 2.0
    wall_seconds: float = 10.0
    memory_bytes: int = 256 * MiB


def respond(connection: socket.socket, limits: Limits) -> None:
    """Analyse the program received over the connection. Its bytes are read only once the limits are in force."""
    connection.sendall(STARTED)
    apply_limits(limits)
    try:
        request = requests().validate_json(receive(connection, MAX_REQUEST))
        send(connection, PROFILE + responses().dump_json(Response(analyse(request.sources, request.reference))))
    except MemoryError:
        send(connection, OUT_OF_MEMORY)


def apply_limits(limits: Limits) -> None:
    """Limit this process for good: the kernel ends it when its time is up, and denies it more memory and any file."""
    for expired in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(expired, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_seconds)
    # Unlike a timer, a lowered hard limit cannot be raised again from inside.
    _limit(resource.RLIMIT_CPU, math.ceil(limits.cpu_seconds) + 1)
    _limit(resource.RLIMIT_AS, limits.memory_bytes)
    for forbidden in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        _limit(forbidden, 0)


def _limit(kind: int, amount: int) -> None:
    """Set a limit, or keep a lower one that is already in force."""
    _, hard = resource.getrlimit(kind)
    lowest = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    resource.setrlimit(kind, (lowest, lowest))
