"""Reads training progress and metrics out of a job's output. Pure: text in, values out."""

from __future__ import annotations

from crucible.agent.output.parser import OutputParser
from crucible.agent.output.progress import Progress, fold
from crucible.agent.output.seen import Seen

__all__ = ["OutputParser", "Progress", "Seen", "fold"]
