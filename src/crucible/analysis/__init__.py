"""Source code in, a profile out: what a program needs, learned without running it."""

from __future__ import annotations

from pathlib import Path

from crucible.analysis.analyse import analyse
from crucible.analysis.conclusions.compute.runtime import Reference
from crucible.analysis.process import AnalysisWorker, Limits, analyse_isolated
from crucible.analysis.source.program_files import gathered
from crucible.analysis.source.sources import Sources
from crucible.core.routing.profile import Profile

__all__ = ["AnalysisWorker", "Limits", "Reference", "Sources", "analyse", "analyse_isolated", "gathered", "profile_of"]


def profile_of(path: Path, arguments: tuple[str, ...] = ()) -> Profile:
    """Analyse a program on this machine with the files around it, started with these arguments."""
    return analyse_isolated(gathered(path, arguments))
