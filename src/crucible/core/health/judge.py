"""Judge a job's health: all findings, the worst first."""

from __future__ import annotations

from crucible.core.health import series_names
from crucible.core.health.machine import machine_findings
from crucible.core.health.training import training_findings
from crucible.core.health.values import Finding, HealthInputs, Judgement, Stage, Verdict, judgement

ENOUGH = 5
"""Points of a loss before a job that has no trouble is called healthy for it."""


def judge_health(signs: HealthInputs) -> Judgement:
    """Return the health of a job. Deterministic; its cost is bounded by the points in `signs`."""
    findings = _trouble(signs)
    return judgement(findings or [_fine(signs)])


def _trouble(signs: HealthInputs) -> list[Finding]:
    found: list[Finding] = []
    if signs.stage is Stage.WAITING:
        return found
    if signs.stage is Stage.RUNNING:
        found += machine_findings(signs)
        if signs.unreachable:
            found.append(
                Finding(
                    Verdict.UNREACHABLE,
                    "Its machine does not answer; what is known of it is old.",
                    "Wait: the job goes on by itself, and its news will come.",
                )
            )
    if signs.stage is Stage.FAILED:
        found.append(Finding(Verdict.FAILED, signs.reason or "It failed.", signs.advice))
    return [*found, *training_findings(signs)]


def _fine(signs: HealthInputs) -> Finding:
    name, values = _main(signs)
    evidence = {"first": values[0], "last": values[-1], "points": float(len(values))} if values else {}
    course = f" {name} went from {values[0]:.4g} to {values[-1]:.4g}." if len(values) > 1 else ""
    match signs.stage:
        case Stage.WAITING:
            return Finding(Verdict.WAITING, "It has not started yet.")
        case Stage.CANCELLED:
            return Finding(Verdict.CANCELLED, f"It was cancelled.{course}", "", name, None, evidence)
        case Stage.COMPLETED:
            return Finding(
                Verdict.FINISHED_WELL, f"It finished, and nothing was wrong.{course}", "", name, None, evidence
            )
        case _ if len(values) < ENOUGH:
            return Finding(Verdict.TOO_EARLY, f"It runs; {_too_little(name, len(values))}.", "", name, None, evidence)
        case _:
            return Finding(Verdict.HEALTHY, f"It runs as it should.{course}", "", name, None, evidence)


def _main(signs: HealthInputs) -> tuple[str | None, list[float]]:
    """Return the name and the values of the most telling series."""
    told = [name for name in signs.series if not name.startswith(series_names.SYSTEM)]
    first = [
        *series_names.training_losses(told),
        *filter(series_names.is_loss, told),
        *filter(series_names.goal_of, told),
    ]
    if not first:
        return None, []
    parts = signs.series[first[0]]
    return first[0], [point.value for part in parts for point in part if point.value is not None]


def _too_little(name: str | None, points: int) -> str:
    if name is None:
        return "it reports no loss or other metric that could be judged"
    return f"{name} has too few points to judge ({points})"
