"""Decide which checkpoints and jobs are kept and which may be removed, each with a reason. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crucible.core.job.spec import KeepPolicy

DAY = 86400.0
DEFAULT_AGE = 30 * DAY
"""The default age in seconds at which `prune` removes an ended job."""


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint of a job, as the ledger records it."""

    id: str
    rank: int = 0
    step: int | None = None
    metric: float | None = None


@dataclass(frozen=True)
class RetentionVerdict:
    """Whether a checkpoint or job is kept, and why (or why not)."""

    id: str
    kept: bool
    why: str


@dataclass(frozen=True)
class EndedJob:
    """A job to prune. `busy` says that some of its machines may still exist."""

    id: str
    terminal: bool
    ended_at: float | None
    busy: bool = False


def keep_checkpoints(
    rows: Sequence[Checkpoint], keeping: KeepPolicy, needed: Iterable[str] = ()
) -> list[RetentionVerdict]:
    """Return the verdict on each of a job's checkpoints, which come oldest first; every rank has its own count.

    The newest of each rank is always kept, as are those in `needed`: something starts, or may start, from them.
    """
    reasons: dict[str, str] = {}
    for rank in {row.rank for row in rows}:
        mine = [row for row in rows if row.rank == rank]
        # The first reason of a checkpoint is the one shown.
        for found in (_newest(mine, keeping.latest), _best(mine, keeping), _spaced(mine, keeping.every)):
            for checkpoint, why in found.items():
                reasons.setdefault(checkpoint, why)
    for checkpoint in needed:
        reasons.setdefault(checkpoint, "an attempt starts from it")
    why_not = _why_not(keeping)
    return [RetentionVerdict(row.id, row.id in reasons, reasons.get(row.id, why_not)) for row in rows]


def prune_jobs(rows: Iterable[EndedJob], older_than: float, now: float) -> list[RetentionVerdict]:
    """Return the verdict on each job: those that ended more than `older_than` seconds ago may be removed."""
    return [_judge(row, older_than, now) for row in rows]


def _judge(row: EndedJob, older_than: float, now: float) -> RetentionVerdict:
    if not row.terminal or row.ended_at is None:
        return RetentionVerdict(row.id, True, "it has not ended")
    if row.busy:
        return RetentionVerdict(row.id, True, "one of its machines is not gone yet")
    age = now - row.ended_at
    if age < older_than:
        return RetentionVerdict(row.id, True, f"it ended {format_age(age)} ago")
    return RetentionVerdict(row.id, False, f"it ended {format_age(age)} ago, longer than {format_age(older_than)}")


def format_age(seconds: float) -> str:
    """Format a duration in its largest fitting unit, such as `3 days`."""
    for unit, size in (("day", DAY), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{max(0, int(seconds))} s"


def _newest(rows: Sequence[Checkpoint], count: int) -> dict[str, str]:
    chosen = rows[-count:]
    older = {row.id: f"one of the {count} newest" for row in chosen[:-1]}
    return {chosen[-1].id: "the newest", **older} if chosen else {}


def _best(rows: Sequence[Checkpoint], keeping: KeepPolicy) -> dict[str, str]:
    sign = -1.0 if keeping.higher_is_better else 1.0
    scored = [
        (sign * row.metric, -n, row.id)
        for n, row in enumerate(rows)
        if row.metric is not None and math.isfinite(row.metric)
    ]
    why = "the best" if keeping.best == 1 else f"one of the {keeping.best} best"
    return {row: why for _, _, row in sorted(scored)[: keeping.best]}


def _spaced(rows: Sequence[Checkpoint], every: int | None) -> dict[str, str]:
    """Return the first checkpoint at or after each multiple of `every` steps."""
    first: dict[int, str] = {}
    for row in rows:
        if every and row.step is not None and row.step >= every:
            first.setdefault(row.step // every, row.id)
    return dict.fromkeys(first.values(), f"one every {every} steps")


def _why_not(keeping: KeepPolicy) -> str:
    rules = [f"the {keeping.latest} newest" if keeping.latest > 1 else "the newest"]
    if keeping.best:
        rules.append(f"the {keeping.best} best" if keeping.best > 1 else "the best")
    if keeping.every:
        rules.append(f"one every {keeping.every} steps")
    return f"only {', '.join(rules[:-1]) + ' and ' if len(rules) > 1 else ''}{rules[-1]} are kept"
