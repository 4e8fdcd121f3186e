"""Health: is a job doing well, how do we know, and what should its owner do."""

from crucible.core.health.judge import judge
from crucible.core.health.series_names import SYSTEM, Goal, goal_of, wanted
from crucible.core.health.values import Finding, Judgement, Level, Part, Point, Signs, Stage, Verdict

__all__ = [
    "SYSTEM",
    "Finding",
    "Goal",
    "Judgement",
    "Level",
    "Part",
    "Point",
    "Signs",
    "Stage",
    "Verdict",
    "goal_of",
    "judge",
    "wanted",
]
