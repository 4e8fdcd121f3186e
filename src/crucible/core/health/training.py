"""Findings from loss curves: not finite, rising, flat, or better on training data alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from crucible.core.health import series_names
from crucible.core.health.curve import Curve, curve_of, interquartile_mean, levels, noise, standard_error
from crucible.core.health.values import Finding, HealthInputs, Part, Point, Verdict

NEED_RISE = 24
"""Points of a curve that are needed to judge its trend."""
NEED_BURST = 8
NEED_FLAT = 60
NEED_HELD_OUT = 6
MIN_FRACTION = 0.1
"""The fraction of a job that must be done before a flat curve means something."""
RISE_OF_FALL = 0.35
"""A rise counts if it undoes this share of the fall before,"""
RISE_OF_LEVEL = 0.2
"""and is this share of the level itself,"""
SURE = 6.0
"""and is this many standard errors."""
BURST = 3.0
"""A jump above this many times the range of all values before is a burst, whatever the trend."""
FLAT_OF_LEVEL = 0.02
FLAT_OF_FALL = 0.01
OVERFIT_OF_FALL = 0.1
OVERFIT_OF_LEVEL = 0.03
MISSING_AT_END = 2
"""Consecutive points that are not finite, above a mere gap."""

ADVICE = {
    Verdict.NOT_FINITE: "It learns nothing from then on: cancel it if it is running, and resume from a checkpoint "
    "before that step with a lower learning rate, gradient clipping or higher precision; look for a division by zero.",
    Verdict.DIVERGING: "Lower the learning rate or clip gradients, and resume from a checkpoint before it rose.",
    Verdict.NOT_CONVERGING: "Check that gradients reach the weights and that labels match the inputs, and try another "
    "learning rate; first make it overfit a few examples.",
    Verdict.PLATEAU: "It may have converged: stop it and keep the best checkpoint, or lower the learning rate.",
    Verdict.OVERFITTING: "Stop it and use the best checkpoint; more data, augmentation, weight decay or dropout help.",
}


def training_findings(inputs: HealthInputs) -> Iterator[Finding]:
    """Yield all findings about the reported series, each kind of problem once for each series."""
    reported = [name for name in inputs.series if not name.startswith(series_names.SYSTEM)]
    for name in filter(series_names.is_loss, reported):
        yield from _not_finite(name, inputs)
    for name in series_names.training_losses(reported):
        yield from _trend(name, curve_of(inputs.series[name]), inputs)
    for name in reported:
        yield from _overfitting(name, reported, inputs)


def _not_finite(name: str, inputs: HealthInputs) -> Iterator[Finding]:
    parts = inputs.series[name]
    last: Part = inputs.tails.get(name) or (parts[-1] if parts else ())
    missing = _missing_at_end(last)
    if missing < (1 if inputs.stage.ended else MISSING_AT_END):
        return
    begun = last[-missing].step
    since = f"since step {begun:g}" if missing < len(last) else f"since step {begun:g} or earlier"
    good = next((point for point in reversed(last) if point.value is not None), None)
    yield Finding(
        Verdict.NOT_FINITE,
        f"{name} is not finite {since} ({missing} points in a row).",
        ADVICE[Verdict.NOT_FINITE],
        name,
        begun,
        {"points": missing, **({"last_value": good.value} if good and good.value is not None else {})},
    )


def _missing_at_end(points: Sequence[Point]) -> int:
    return next((n for n, point in enumerate(reversed(points)) if point.value is not None), len(points))


def _trend(name: str, curve: Curve, inputs: HealthInputs) -> Iterator[Finding]:
    found = _burst(name, curve) or _rising(name, curve)
    if found is not None:
        yield found
    elif not inputs.stage.ended and (inputs.fraction is None or inputs.fraction >= MIN_FRACTION):
        yield from filter(None, [_flat(name, curve)])


def _burst(name: str, curve: Curve) -> Finding | None:
    """Return a finding if the last points are far above all earlier ones."""
    values = curve.values
    if len(values) < NEED_BURST:
        return None
    before, last = values[:-3], values[-3:]
    edge = max(before) + BURST * (max(before) - min(before)) + RISE_OF_LEVEL * abs(max(before))
    if min(last) <= edge:
        return None
    return _diverging(name, curve.step(-3), median(before[-5:]), median(last), min(before))


def _rising(name: str, curve: Curve) -> Finding | None:
    """Return a finding if the level has risen for a while, and far enough above its best not to be noise."""
    values = curve.values
    if len(values) < NEED_RISE:
        return None
    found = levels(values)
    best = min(range(len(found)), key=found.__getitem__)
    rise = found[-1] - found[best]
    won = max(found[0] - found[best], 0.0)
    wide = len(values) // len(found)
    enough = max(RISE_OF_FALL * won, RISE_OF_LEVEL * abs(found[best]), SURE * standard_error(values, wide))
    if rise <= enough or not _keeps_rising(found[best:]):
        return None
    return _diverging(name, curve.step(best * wide), found[best], found[-1], found[best])


def _keeps_rising(found: Sequence[float]) -> bool:
    """Return whether the level is at its highest and still rising: one that falls again was only a jump."""
    ups = [after > before for before, after in pairwise(found[-4:])]
    return len(found) > 2 and found[-1] >= max(found) and all(ups[-2:])


def _diverging(name: str, step: float, before: float, now: float, best: float) -> Finding:
    return Finding(
        Verdict.DIVERGING,
        f"{name} rises: {before:.4g} at step {step:g}, now {now:.4g}.",
        ADVICE[Verdict.DIVERGING],
        name,
        step,
        {"before": before, "now": now, "best": best},
    )


def _flat(name: str, curve: Curve) -> Finding | None:
    """Return a finding if the curve never fell, or has not fallen in the second half; only if noise leaves no doubt."""
    values = curve.values
    count = len(values)
    if count < NEED_FLAT:
        return None
    third, quarter = count // 3, count // 4
    first, last = interquartile_mean(values[:third]), interquartile_mean(values[-third:])
    unsure = 3 * 1.4142 * standard_error(values, quarter)
    won = max(levels(values)[0] - interquartile_mean(values[-quarter:]), 0.0)
    evidence = {"first": first, "last": last, "points": count}
    if max(first - last, won) + unsure < FLAT_OF_LEVEL * abs(first):
        message = f"{name} has not fallen in {count} points: {first:.4g} at first, {last:.4g} recently."
        return _finding(Verdict.NOT_CONVERGING, message, name, curve.step(0), evidence)
    lately = interquartile_mean(values[-2 * quarter : -quarter]) - interquartile_mean(values[-quarter:])
    if won > 0 and lately + unsure < FLAT_OF_FALL * won:
        step = curve.step(-2 * quarter)
        message = f"{name} has stopped falling: {last:.4g} since step {step:g}, from {values[0]:.4g} at first."
        return _finding(Verdict.PLATEAU, message, name, step, evidence)
    return None


def _overfitting(name: str, reported: Sequence[str], inputs: HealthInputs) -> Iterator[Finding]:
    """Yield a finding if the model has been getting worse on held-out data and better on training data."""
    other = series_names.training_counterpart(name, reported)
    goal = series_names.goal_of(name)
    if other is None or goal is None:
        return
    sign = 1.0 if goal is series_names.Goal.LOWER else -1.0
    held, trained = curve_of(inputs.series[name], sign), curve_of(inputs.series[other], sign)
    best = _turning_point(held)
    if best is None:
        return
    smooth, step = _smoothed(held.values), held.step(best)
    then, now = _around(trained, step), median(trained.values[-3:]) if len(trained) else None
    if then is None or now is None or now >= then:
        return
    yield Finding(
        Verdict.OVERFITTING,
        f"{name} was best at step {step:g} ({sign * smooth[best]:.4g}), now {sign * smooth[-1]:.4g}, "
        f"while {other} went from {sign * then:.4g} to {sign * now:.4g}.",
        ADVICE[Verdict.OVERFITTING],
        name,
        step,
        {"best": sign * smooth[best], "now": sign * smooth[-1], "trained_then": sign * then, "trained_now": sign * now},
    )


def _turning_point(held: Curve) -> int | None:
    """Return the index of the lowest point, if the curve has clearly risen since and stays up; else None."""
    values = held.values
    if len(values) < NEED_HELD_OUT:
        return None
    smooth = _smoothed(values)
    best = min(range(len(smooth)), key=smooth.__getitem__)
    since = len(smooth) - 1 - best
    won = max(smooth[0] - smooth[best], 0.0)
    enough = max(OVERFIT_OF_FALL * won, OVERFIT_OF_LEVEL * abs(smooth[best]), 4 * noise(values))
    if since < max(3, len(smooth) // 8) or smooth[-1] - smooth[best] <= enough:
        return None
    after = levels(smooth[best:], most=4, least=1)
    return best if after[-1] >= max(after) else None


def _smoothed(values: Sequence[float]) -> list[float]:
    return [median(values[max(0, n - 1) : n + 2]) for n in range(len(values))]


def _around(curve: Curve, step: float) -> float | None:
    """Return the level of a curve near a step, or None."""
    near = sorted(curve.points, key=lambda point: abs(point[0] - step))[:3]
    return median(value for _step, value in near) if near else None


def _finding(verdict: Verdict, message: str, name: str, step: float, evidence: dict[str, float]) -> Finding:
    return Finding(verdict, message, ADVICE[verdict], name, step, evidence)
