"""Parse training progress and metrics from a job's output. Pure: text in, values out."""

from __future__ import annotations

from crucible.agent.output.parsing.line_values import LineValues
from crucible.agent.output.parsing.parser import OutputParser
from crucible.agent.output.parsing.progress import Progress, update_progress

__all__ = ["LineValues", "OutputParser", "Progress", "update_progress"]
