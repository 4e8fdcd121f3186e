"""Bounds: how much reading a program may take. The process that reads puts them on itself."""

from __future__ import annotations

import math
import resource
import signal
from dataclasses import dataclass

MiB = 2**20


@dataclass(frozen=True)
class Bounds:
    """Of one program: `seconds` of processor time, `patience` in seconds that pass. Of the process that reads it, and
    perhaps others after it: `memory` in bytes of address space, `life` in seconds of processor time before the last.
    """

    seconds: float = 2.0
    patience: float = 10.0
    memory: int = 256 * MiB
    life: float = 20.0


USUAL = Bounds()


def confine(bounds: Bounds) -> None:
    """Puts the bounds on this process, for good. Beyond them it is ended, or out of memory."""
    for ending in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(ending, signal.SIG_DFL)
    allow(bounds.seconds, bounds.patience)
    _limit(resource.RLIMIT_CPU, math.ceil(bounds.life + bounds.seconds) + 1)
    _limit(resource.RLIMIT_AS, bounds.memory)
    for nothing in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        _limit(nothing, 0)


def allow(seconds: float, patience: float) -> None:
    """So much from now on, of processor time and of time that passes; then this process is ended. 0 is without end."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, patience)


def _limit(kind: int, amount: int) -> None:
    """A limit that is lower already stays."""
    _, most = resource.getrlimit(kind)
    least = amount if most == resource.RLIM_INFINITY else min(amount, most)
    resource.setrlimit(kind, (least, least))
