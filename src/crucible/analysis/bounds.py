"""Bounds: how much reading a program may take. The process that reads puts them on itself."""

from __future__ import annotations

import math
import resource
import signal
from dataclasses import dataclass

MiB = 2**20


@dataclass(frozen=True)
class Bounds:
    """`seconds` of processor time, `patience` in seconds that pass, `memory` in bytes of address space."""

    seconds: float = 2.0
    patience: float = 10.0
    memory: int = 256 * MiB


USUAL = Bounds()


def confine(bounds: Bounds) -> None:
    """Puts the bounds on this process, for good. Beyond them it is ended, or out of memory."""
    for ending, timer, seconds in (
        (signal.SIGPROF, signal.ITIMER_PROF, bounds.seconds),
        (signal.SIGALRM, signal.ITIMER_REAL, bounds.patience),
    ):
        signal.signal(ending, signal.SIG_DFL)
        signal.setitimer(timer, seconds)
    _limit(resource.RLIMIT_CPU, math.ceil(bounds.seconds) + 1)
    _limit(resource.RLIMIT_AS, bounds.memory)
    for nothing in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        _limit(nothing, 0)


def _limit(kind: int, amount: int) -> None:
    """A limit that is lower already stays."""
    _, most = resource.getrlimit(kind)
    least = amount if most == resource.RLIM_INFINITY else min(amount, most)
    resource.setrlimit(kind, (least, least))
