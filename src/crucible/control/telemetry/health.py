"""The health of a job: gather its signs from the rows, judge them, and return the view."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Statement
from crucible.control.jobs.views import iso
from crucible.control.telemetry import points
from crucible.core.health import (
    SYSTEM,
    Finding,
    HealthInputs,
    Judgement,
    Part,
    Point,
    Stage,
    judge_health,
    select_series,
)
from crucible.core.ids import short
from crucible.core.job.states import Condition
from crucible.core.lifecycle import Attempt, Job, JobState, World
from crucible.core.views.jobs import FindingView, HealthView, ProgressView

POINTS = 512
"""Points of each series for its overall course."""
TAIL = 256
"""The last points, unthinned, of longer series and of the machine's own series."""
ATTEMPTS = 3
"""Earlier attempts that one continued from, which are judged with it."""

_s = t.log_segments.c
_LAST_OUTPUT = Statement(
    select(_s.stored_at).where(_s.attempt == bindparam("attempt"), _s.rank == 0).order_by(_s.n.desc()).limit(1)
)
_STAGES = {
    JobState.STARTING: Stage.RUNNING,
    JobState.RUNNING: Stage.RUNNING,
    JobState.STOPPING: Stage.RUNNING,
    JobState.COMPLETED: Stage.COMPLETED,
    JobState.FAILED: Stage.FAILED,
    JobState.CANCELLED: Stage.CANCELLED,
}


def job_health(conn: Connection, world: World, progress: ProgressView | None, now: float) -> HealthView:
    """Return the judgement of a job. Reads a bounded number of points, however many there are."""
    return health_view(judge_health(gather_signs(conn, world, progress, now)), now)


def gather_signs(conn: Connection, world: World, progress: ProgressView | None, now: float) -> HealthInputs:
    job, line = world.job, _lineage(world.attempts)
    last = line[-1] if line else None
    stage = _STAGES.get(job.state, Stage.WAITING)
    if last is None or last.started_at is None:
        started = stage if stage.ended else Stage.WAITING
        return HealthInputs(started, reason=_reason(job), advice=_advice(job))
    series, tails = _read_courses(conn, line)
    return HealthInputs(
        stage,
        series,
        tails,
        fraction=progress.fraction if progress else None,
        ran_seconds=max(now - last.started_at, 0.0),
        quiet_seconds=_quiet_seconds(conn, last.id, now),
        gpus=sum(len(slot.allocation.gpus) for slot in last.slots),
        memory_limit=last.slots[0].allocation.memory_bytes,
        unreachable=Condition.UNREACHABLE in job.conditions,
        reason=_reason(job),
        advice=_advice(job),
    )


def health_view(judged: Judgement, now: float) -> HealthView:
    worst = judged.worst
    return HealthView(
        verdict=judged.verdict.value,
        level=judged.level.value,
        message=worst.message,
        advice=worst.advice or None,
        findings=tuple(map(_finding_view, judged.findings)),
        judged_at=iso(now),
    )


def _finding_view(finding: Finding) -> FindingView:
    return FindingView(
        verdict=finding.verdict.value,
        level=finding.level.value,
        message=finding.message,
        advice=finding.advice or None,
        series=finding.series,
        step=finding.step,
        evidence=dict(finding.evidence),
    )


def _lineage(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the last attempt and those it continued from, oldest first."""
    found: list[Attempt] = []
    for attempt in reversed(attempts):
        found.insert(0, attempt)
        if attempt.resume_from is None or len(found) > ATTEMPTS:
            break
    return found


def _read_courses(conn: Connection, line: Sequence[Attempt]) -> tuple[dict[str, tuple[Part, ...]], dict[str, Part]]:
    """Return the courses of the reported series, and the last points of those of the last attempt."""
    series: dict[str, tuple[Part, ...]] = {}
    tails: dict[str, Part] = {}
    for attempt in line:
        names = select_series(points.series_names(conn, attempt.id, 0))
        found = _read(conn, attempt, [name for name in names if not name.startswith(SYSTEM)], POINTS)
        for name, one in found.items():
            series[name] = (*series.get(name, ()), course(one))
        series.update((name, (*parts, ())) for name, parts in series.items() if name not in found)
        if attempt is line[-1]:
            thinned = [name for name, one in found.items() if one.count > len(one.points)]
            tails = {name: _to_part(one) for name, one in _read(conn, attempt, thinned, -TAIL).items()}
            samples = _read(conn, attempt, [name for name in names if name.startswith(SYSTEM)], -TAIL)
            series.update((name, (_to_part(one),)) for name, one in samples.items())
    return series, tails


def _read(conn: Connection, attempt: Attempt, names: list[str], most: int) -> dict[str, points.Series]:
    return points.read_series(conn, attempt.id, names, most) if names else {}


def course(series: points.Series) -> Part:
    """Return a series as drawn; where that is pairs of lowest and highest points, the middle of each pair."""
    part = _to_part(series)
    if series.count <= len(part):
        return part
    pairs = zip(part[::2], part[1::2], strict=False)
    return tuple(Point(high.step, _between(low.value, high.value), high.at) for low, high in pairs)


def _between(low: float | None, high: float | None) -> float | None:
    return None if low is None or high is None else low / 2 + high / 2


def _to_part(series: points.Series) -> Part:
    return tuple(Point(*point) for point in series.points)


def _quiet_seconds(conn: Connection, attempt: str, now: float) -> float | None:
    last = _LAST_OUTPUT.value(conn, attempt=attempt)
    return None if last is None else max(now - float(last), 0.0)


def _reason(job: Job) -> str:
    return job.reason.policy.message if job.reason else ""


def _advice(job: Job) -> str:
    return job.reason.policy.advice.format(job=short(job.id)) if job.reason else ""
