"""Source code in, a profile out: what a program needs, learned without running it."""

from __future__ import annotations

from pathlib import Path

from crucible.analysis.analyse import analyse
from crucible.analysis.bounds import USUAL, Bounds
from crucible.analysis.conclusions.runtime import Reference
from crucible.analysis.gathering import gathered
from crucible.analysis.reader import Reader, analyse_within
from crucible.analysis.sources import Sources
from crucible.core.profile import Profile

__all__ = ["Bounds", "Reader", "Reference", "Sources", "analyse", "analyse_within", "gathered", "profile_of"]


def profile_of(path: Path, arguments: tuple[str, ...] = (), bounds: Bounds = USUAL) -> Profile:
    """Of a program on this machine with the files around it, started with these arguments."""
    return analyse_within(gathered(path, arguments), bounds)
