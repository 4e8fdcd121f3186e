"""Runs the analysis in processes with limits: a hostile program may try to exhaust the time or memory of its reader."""

from __future__ import annotations

from crucible.analysis.process.child import Limits
from crucible.analysis.process.client import AnalysisWorker, analyse_isolated

__all__ = ["AnalysisWorker", "Limits", "analyse_isolated"]
