"""Analysis in processes with limits: a program may be written to take the time and memory of what reads it."""

from __future__ import annotations

from crucible.analysis.process.child import Limits
from crucible.analysis.process.client import AnalysisWorker, analyse_isolated

__all__ = ["AnalysisWorker", "Limits", "analyse_isolated"]
