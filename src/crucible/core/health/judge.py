"""Judge a job's health: all findings, the worst first."""

from __future__ import annotations

from crucible.core.health import series_names
from crucible.core.health.machine import machine_findings
from crucible.core.health.training import training_findings
from crucible.core.health.values import Finding, HealthInputs, Judgement, Stage, Verdict, judgement

ENOUGH = 5
"""Points of a loss that are needed before a job without findings is called healthy."""


def judge_health(inputs: HealthInputs) -> Judgement:
    """Return the health of a job. Deterministic; its cost is bounded by the number of points in `inputs`."""
    findings = _trouble(inputs)
    return judgement(findings or [_fine(inputs)])


def _trouble(inputs: HealthInputs) -> list[Finding]:
    found: list[Finding] = []
    if inputs.stage is Stage.WAITING:
        return found
    if inputs.stage is Stage.RUNNING:
        found += machine_findings(inputs)
        if inputs.unreachable:
            found.append(
                Finding(
                    Verdict.UNREACHABLE,
                    "Its machine is unreachable; the state shown is old.",
                    "Wait: the job may still be running, and updates will resume.",
                )
            )
    if inputs.stage is Stage.FAILED:
        found.append(Finding(Verdict.FAILED, inputs.reason or "It failed.", inputs.advice))
    return [*found, *training_findings(inputs)]


def _fine(inputs: HealthInputs) -> Finding:
    name, values = _main(inputs)
    evidence = {"first": values[0], "last": values[-1], "points": float(len(values))} if values else {}
    course = f" {name} went from {values[0]:.4g} to {values[-1]:.4g}." if len(values) > 1 else ""
    match inputs.stage:
        case Stage.WAITING:
            return Finding(Verdict.WAITING, "It has not started yet.")
        case Stage.CANCELLED:
            return Finding(Verdict.CANCELLED, f"It was cancelled.{course}", "", name, None, evidence)
        case Stage.COMPLETED:
            return Finding(Verdict.FINISHED_WELL, f"It finished without problems.{course}", "", name, None, evidence)
        case _ if len(values) < ENOUGH:
            return Finding(
                Verdict.TOO_EARLY, f"It is running; {_too_little(name, len(values))}.", "", name, None, evidence
            )
        case _:
            return Finding(Verdict.HEALTHY, f"It is running normally.{course}", "", name, None, evidence)


def _main(inputs: HealthInputs) -> tuple[str | None, list[float]]:
    """Return the name and the values of the most informative series; without one, None and nothing."""
    reported = [name for name in inputs.series if not name.startswith(series_names.SYSTEM)]
    first = [
        *series_names.training_losses(reported),
        *filter(series_names.is_loss, reported),
        *filter(series_names.goal_of, reported),
    ]
    if not first:
        return None, []
    parts = inputs.series[first[0]]
    return first[0], [point.value for part in parts for point in part if point.value is not None]


def _too_little(name: str | None, points: int) -> str:
    if name is None:
        return "it reports no loss or other metric to judge it by"
    return f"{name} has too few points to judge ({points})"
