"""Analysis: reads a training program's source code and says what it needs, without running it."""

from __future__ import annotations

from pathlib import Path

from crucible.analysis.analyse import analyse
from crucible.analysis.conclusions.compute.runtime import Reference
from crucible.analysis.process import AnalysisWorker, Limits, analyse_isolated
from crucible.analysis.source.program_files import gather_sources
from crucible.analysis.source.sources import Sources
from crucible.core.routing.profile import Profile

__all__ = [
    "AnalysisWorker",
    "Limits",
    "Reference",
    "Sources",
    "analyse",
    "analyse_isolated",
    "gather_sources",
    "profile_of",
]


def profile_of(path: Path, arguments: tuple[str, ...] = ()) -> Profile:
    """Return the profile of a program on this machine, read with the files around it and these command-line arguments.

    Raises BadInput if the file does not exist or cannot be read.
    """
    return analyse_isolated(gather_sources(path, arguments))
