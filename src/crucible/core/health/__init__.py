"""The health of a job: findings from its series and its machine, a verdict, and advice."""

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
