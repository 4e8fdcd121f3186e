"""Health: is a job doing well, how do we know, and what should its owner do."""

from crucible.core.health.judge import judge_health
from crucible.core.health.series_names import SYSTEM, Goal, goal_of, select_series
from crucible.core.health.values import Finding, HealthInputs, Judgement, Level, Part, Point, Stage, Verdict

__all__ = [
    "SYSTEM",
    "Finding",
    "Goal",
    "HealthInputs",
    "Judgement",
    "Level",
    "Part",
    "Point",
    "Stage",
    "Verdict",
    "goal_of",
    "judge_health",
    "select_series",
]
