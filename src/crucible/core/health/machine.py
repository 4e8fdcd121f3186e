"""What a job's machine shows: no progress, an idle GPU, memory that runs out. All times are the agent's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from crucible.core.compute.resources import format_duration, format_memory
from crucible.core.health.series_names import SYSTEM
from crucible.core.health.values import Finding, HealthInputs, Point, Verdict

STALL_TIMES = 10.0
"""Times the usual interval between two reports that a job may take for one."""
LEAST_STALL = 120.0
"""Seconds without progress that are never a stall."""
BUSY_TIMES = 5.0
"""How much longer a program may be silent while it computes."""
BUSY_PERCENT = 20.0
IDLE_SECONDS = 600.0
"""How long a program that reports nothing may use no CPU and print nothing."""
IDLE_CPU = 2.0
GPU_IDLE = 5.0
GPU_SECONDS = 120.0
"""How long a GPU is watched before it is called idle, and how long a job may take to begin."""
MEMORY_NEAR = 0.92
NEED_REPORTS = 4

_GPU = re.compile(r"^system\.gpu(\d+)_utilisation$")
_CPU, _MEMORY = f"{SYSTEM}cpu_percent", f"{SYSTEM}memory_bytes"


def machine_findings(signs: HealthInputs) -> Iterator[Finding]:
    last = {name: parts[-1] for name, parts in signs.series.items() if parts and parts[-1]}
    samples = {name: signs.tails.get(name) or part for name, part in last.items() if name.startswith(SYSTEM)}
    reports = {name: signs.tails.get(name) or part for name, part in last.items() if not name.startswith(SYSTEM)}
    yield from _stalled(reports, samples, signs)
    yield from _idle_gpus(samples, signs)
    yield from _memory(samples.get(_MEMORY, ()), signs)


def _stalled(
    reports: Mapping[str, Sequence[Point]], samples: Mapping[str, Sequence[Point]], signs: HealthInputs
) -> Iterator[Finding]:
    now = max((point.at for part in samples.values() for point in part[-1:]), default=None)
    if now is None:
        return
    usual = _usual(reports)
    if usual is None:
        yield from _idle_program(samples.get(_CPU, ()), signs) if not reports else ()
        return
    name, last = max(((name, part[-1]) for name, part in reports.items()), key=lambda found: found[1].at)
    since, allowed = now - last.at, max(STALL_TIMES * usual, LEAST_STALL) * (BUSY_TIMES if _busy(samples) else 1)
    if since <= allowed or (signs.quiet_seconds is not None and signs.quiet_seconds <= allowed):
        return
    yield Finding(
        Verdict.STALLED,
        f"No progress for {format_duration(since)}; a report came every {format_duration(max(usual, 1))} before.",
        "Look at its last output. If it hangs (data loading, a lock, a lost peer), cancel it and resume it from its "
        "last checkpoint; if it evaluates or saves, wait.",
        name,
        last.step,
        {"seconds": since, "usual_seconds": usual},
    )


def _busy(samples: Mapping[str, Sequence[Point]]) -> bool:
    """Whether something is computed all the same: an evaluation, an export."""
    watched = [part for name, part in samples.items() if name == _CPU or _GPU.match(name)]
    return any(median(recent) >= BUSY_PERCENT for part in watched if (recent := _recent(part, LEAST_STALL)))


def _usual(reports: Mapping[str, Sequence[Point]]) -> float | None:
    """The usual time between two reports of the series that reports most often."""
    gaps = [_gap(part) for part in reports.values() if len(part) >= NEED_REPORTS]
    return min((gap for gap in gaps if gap is not None), default=None)


def _gap(part: Sequence[Point]) -> float | None:
    gaps = sorted(after.at - before.at for before, after in pairwise(part) if after.at > before.at)
    # The slower ones count: an evaluation now and then is usual too.
    return gaps[int(0.9 * (len(gaps) - 1))] if gaps else None


def _idle_program(cpu: Sequence[Point], signs: HealthInputs) -> Iterator[Finding]:
    """It reports nothing, prints nothing and computes nothing."""
    quiet = signs.quiet_seconds if signs.quiet_seconds is not None else signs.ran_seconds
    recent = _recent(cpu, IDLE_SECONDS)
    if quiet is None or quiet < IDLE_SECONDS or not recent or cpu[-1].at - cpu[0].at < IDLE_SECONDS:
        return
    busiest = max(recent)
    if busiest >= IDLE_CPU:
        return
    yield Finding(
        Verdict.STALLED,
        f"No output for {format_duration(quiet)}, and it uses no CPU (at most {busiest:.1f}%).",
        "It waits for something that may never come: look at its last output, and cancel it if that is so.",
        _CPU,
        None,
        {"seconds": quiet, "cpu_percent": busiest},
    )


def _idle_gpus(samples: Mapping[str, Sequence[Point]], signs: HealthInputs) -> Iterator[Finding]:
    gpus = {name: part for name, part in samples.items() if _GPU.match(name)}
    if not gpus or (signs.ran_seconds or 0.0) < 2 * GPU_SECONDS:
        return
    levels = {name: median(recent) for name, part in gpus.items() if len(recent := _recent(part, GPU_SECONDS)) >= 10}
    idle = sorted(name for name, level in levels.items() if level < GPU_IDLE)
    if not idle:
        return
    few = f"{len(idle)} of {len(levels)} GPUs do" if len(levels) > 1 else "Its GPU does"
    yield Finding(
        Verdict.IDLE_GPU,
        f"{few} nothing: {', '.join(f'{name} {levels[name]:.0f}%' for name in idle[:4])} lately.",
        "Check that the model is moved to the GPU and that loading data does not hold it up (more workers, pinned "
        "memory); if it needs none, run it on CPUs for less.",
        idle[0],
        None,
        {"idle": float(len(idle)), "gpus": float(len(levels)), "utilisation": levels[idle[0]]},
    )


def _memory(samples: Sequence[Point], signs: HealthInputs) -> Iterator[Finding]:
    recent = _recent(samples, GPU_SECONDS)
    if not recent or not signs.memory_limit:
        return
    used = max(recent)
    if used < MEMORY_NEAR * signs.memory_limit:
        return
    yield Finding(
        Verdict.NEAR_MEMORY_LIMIT,
        f"It uses {format_memory(int(used))} of {format_memory(signs.memory_limit)} memory; it is ended when it needs "
        "more.",
        "Use a smaller batch or fewer workers that load data, or run it with more memory (--memory, --tier).",
        _MEMORY,
        None,
        {"bytes": used, "limit_bytes": float(signs.memory_limit)},
    )


def _recent(part: Sequence[Point], seconds: float) -> list[float]:
    end = part[-1].at if part else 0.0
    return [point.value for point in part if point.value is not None and point.at >= end - seconds]
