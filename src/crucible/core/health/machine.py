"""Findings from a job's machine: no progress, an idle GPU, memory near its limit. All times are the agent's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from crucible.core.compute.resources import format_duration, format_memory
from crucible.core.health.series_names import SYSTEM
from crucible.core.health.values import Finding, HealthInputs, Point, Verdict

STALL_TIMES = 10.0
"""A job is stalled after this many times the usual interval between two reports."""
LEAST_STALL = 120.0
"""Seconds without progress below which a job is never called stalled."""
BUSY_TIMES = 5.0
"""How many times longer a program may be silent while it computes."""
BUSY_PERCENT = 20.0
IDLE_SECONDS = 600.0
"""Seconds after which a program without reports, output and CPU use counts as stalled."""
IDLE_CPU = 2.0
GPU_IDLE = 5.0
GPU_SECONDS = 120.0
"""Seconds that a GPU is watched before it is called idle, and that a job may take to start."""
MEMORY_NEAR = 0.92
NEED_REPORTS = 4

_GPU = re.compile(r"^system\.gpu(\d+)_utilisation$")
_CPU, _MEMORY = f"{SYSTEM}cpu_percent", f"{SYSTEM}memory_bytes"


def machine_findings(inputs: HealthInputs) -> Iterator[Finding]:
    """Yield the findings about a running job's machine."""
    last = {name: parts[-1] for name, parts in inputs.series.items() if parts and parts[-1]}
    samples = {name: inputs.tails.get(name) or part for name, part in last.items() if name.startswith(SYSTEM)}
    reports = {name: inputs.tails.get(name) or part for name, part in last.items() if not name.startswith(SYSTEM)}
    yield from _stalled(reports, samples, inputs)
    yield from _idle_gpus(samples, inputs)
    yield from _memory(samples.get(_MEMORY, ()), inputs)


def _stalled(
    reports: Mapping[str, Sequence[Point]], samples: Mapping[str, Sequence[Point]], inputs: HealthInputs
) -> Iterator[Finding]:
    now = max((point.at for part in samples.values() for point in part[-1:]), default=None)
    if now is None:
        return
    usual = _usual(reports)
    if usual is None:
        yield from _idle_program(samples.get(_CPU, ()), inputs) if not reports else ()
        return
    name, last = max(((name, part[-1]) for name, part in reports.items()), key=lambda found: found[1].at)
    since, allowed = now - last.at, max(STALL_TIMES * usual, LEAST_STALL) * (BUSY_TIMES if _busy(samples) else 1)
    if since <= allowed or (inputs.quiet_seconds is not None and inputs.quiet_seconds <= allowed):
        return
    yield Finding(
        Verdict.STALLED,
        f"No progress for {format_duration(since)}; before, it reported every {format_duration(max(usual, 1))}.",
        "Check its last output. If it hangs (data loading, a lock, a lost peer), cancel it and resume it from its "
        "last checkpoint; if it is evaluating or saving, wait.",
        name,
        last.step,
        {"seconds": since, "usual_seconds": usual},
    )


def _busy(samples: Mapping[str, Sequence[Point]]) -> bool:
    """Return whether the machine computes nevertheless, as in an evaluation or an export."""
    watched = [part for name, part in samples.items() if name == _CPU or _GPU.match(name)]
    return any(median(recent) >= BUSY_PERCENT for part in watched if (recent := _recent(part, LEAST_STALL)))


def _usual(reports: Mapping[str, Sequence[Point]]) -> float | None:
    """Return the usual seconds between two reports of the series that reports most often; None if too few reports."""
    gaps = [_gap(part) for part in reports.values() if len(part) >= NEED_REPORTS]
    return min((gap for gap in gaps if gap is not None), default=None)


def _gap(part: Sequence[Point]) -> float | None:
    gaps = sorted(after.at - before.at for before, after in pairwise(part) if after.at > before.at)
    # Near the slowest: an occasional evaluation is usual too.
    return gaps[int(0.9 * (len(gaps) - 1))] if gaps else None


def _idle_program(cpu: Sequence[Point], inputs: HealthInputs) -> Iterator[Finding]:
    """Yield a finding if the program reports, prints and computes nothing."""
    quiet = inputs.quiet_seconds if inputs.quiet_seconds is not None else inputs.ran_seconds
    recent = _recent(cpu, IDLE_SECONDS)
    if quiet is None or quiet < IDLE_SECONDS or not recent or cpu[-1].at - cpu[0].at < IDLE_SECONDS:
        return
    busiest = max(recent)
    if busiest >= IDLE_CPU:
        return
    yield Finding(
        Verdict.STALLED,
        f"No output for {format_duration(quiet)}, and almost no CPU use (at most {busiest:.1f}%).",
        "It may be waiting for something that never happens: check its last output, and cancel it if so.",
        _CPU,
        None,
        {"seconds": quiet, "cpu_percent": busiest},
    )


def _idle_gpus(samples: Mapping[str, Sequence[Point]], inputs: HealthInputs) -> Iterator[Finding]:
    gpus = {name: part for name, part in samples.items() if _GPU.match(name)}
    if not gpus or (inputs.ran_seconds or 0.0) < 2 * GPU_SECONDS:
        return
    levels = {name: median(recent) for name, part in gpus.items() if len(recent := _recent(part, GPU_SECONDS)) >= 10}
    idle = sorted(name for name, level in levels.items() if level < GPU_IDLE)
    if not idle:
        return
    which = f"{len(idle)} of {len(levels)} GPUs are" if len(levels) > 1 else "Its GPU is"
    yield Finding(
        Verdict.IDLE_GPU,
        f"{which} idle: {', '.join(f'{name} {levels[name]:.0f}%' for name in idle[:4])} recently.",
        "Check that the model is moved to the GPU and that data loading is fast enough (more workers, pinned memory); "
        "if the job needs no GPU, run it on CPUs for less.",
        idle[0],
        None,
        {"idle": float(len(idle)), "gpus": float(len(levels)), "utilisation": levels[idle[0]]},
    )


def _memory(samples: Sequence[Point], inputs: HealthInputs) -> Iterator[Finding]:
    recent = _recent(samples, GPU_SECONDS)
    if not recent or not inputs.memory_limit:
        return
    used = max(recent)
    if used < MEMORY_NEAR * inputs.memory_limit:
        return
    yield Finding(
        Verdict.NEAR_MEMORY_LIMIT,
        f"It uses {format_memory(int(used))} of {format_memory(inputs.memory_limit)} memory and is killed above that.",
        "Use a smaller batch size or fewer data-loading workers, or give it more memory (--memory, --tier).",
        _MEMORY,
        None,
        {"bytes": used, "limit_bytes": float(inputs.memory_limit)},
    )


def _recent(part: Sequence[Point], seconds: float) -> list[float]:
    end = part[-1].at if part else 0.0
    return [point.value for point in part if point.value is not None and point.at >= end - seconds]
