"""Preparing: what a child does while it waits, so that reading finds it done.

The kernel gives memory to a process page by page, when each is first written to, and copies then what it shares with
its parent: that is a fifth of the time of a reading. A spare child writes to as much as a large program needs.
"""

from __future__ import annotations

import select
import socket

from crucible.analysis.analyse import analyse
from crucible.analysis.sample import SAMPLE
from crucible.analysis.sources import Sources

_SMALL, _LARGE = 400, 8_000
"""Bytes: of the sizes that Python keeps in its own arenas, and of those that it has from the system."""

_ROUNDS = 8
_SMALLS, _LARGES = 2_400, 40
"""Of each in a round: about a MiB, and a third of one. Together a little more than 2,000 lines need."""

_SPARSE = 1_000
"""One in so many is held, so that what lies around it is not given back to the system."""


def prepared(line: socket.socket) -> list[bytes]:
    """To be held while memory is to stay at hand. Stops when something comes over the line."""
    small: list[bytes] = []
    large: list[bytes] = []
    for _ in range(_ROUNDS):
        if _heard(line):
            break
        small.extend(bytes(_SMALL) for _ in range(_SMALLS))
        large.extend(bytes(_LARGE) for _ in range(_LARGES))
    else:
        if not _heard(line):
            analyse(Sources({"a.py": SAMPLE.encode()}, "a.py"))
    return [*small[::_SPARSE], *large[-1:]]


def _heard(line: socket.socket) -> bool:
    return bool(select.select([line], [], [], 0)[0])
