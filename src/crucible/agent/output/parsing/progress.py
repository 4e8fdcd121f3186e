"""A job's progress, computed from the values of its lines one after another."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Optional, Union

from crucible.agent.output.parsing.line_values import Epoch, LineValues, Metrics

SMOOTHED_OVER = 60.0
"""Seconds over which the rate is smoothed."""

MEASURED_OVER = 1.0
"""Minimum seconds between two measurements of the rate; shorter ones are noise."""

_BARE, _STEPS, _EPOCHS = 1, 2, 3

_LOSSES = ("loss", "train_loss", "training_loss", "train/loss", "train_loss_step", "avg_loss", "average_loss")

_HELD_OUT = re.compile(r"val|eval|test|dev")

Value = Union[None, int, float, str]


@dataclass(frozen=True)
class Rate:
    """The smoothed rate, as a fraction per second. `fraction` and `at` are of the last measurement."""

    fraction: float
    at: float
    per_second: Optional[float] = None


@dataclass(frozen=True)
class Progress:
    """The progress of a running job, as shown to users. `fraction` is 0..1, or None while no total is known.

    Epochs of a total take precedence over steps of a total; a bare bar counts only if there is neither. `epoch` is as
    the program counts; `shown_epoch` counts from 1, so that the last of two is 2 of 2.
    """

    fraction: Optional[float] = None
    epoch: Optional[Epoch] = None
    total_epochs: Optional[int] = None
    step: Optional[int] = None
    total_steps: Optional[int] = None
    loss: Optional[float] = None
    eta_seconds: Optional[float] = None
    message: str = ""
    source: int = 0
    from_zero: bool = False
    rate: Optional[Rate] = None

    @property
    def shown_epoch(self) -> Optional[Epoch]:
        """The epoch counted from 1, whether the program begins with 0 or 1. A fractional epoch is not changed."""
        counted = self.from_zero and isinstance(self.epoch, int)
        return self.epoch + 1 if counted and self.epoch is not None else self.epoch

    def as_dict(self) -> dict[str, Value]:
        """Return the fields of a PROGRESS message. A loss that is not finite is None, as JSON cannot hold it."""
        loss = self.loss if self.loss is not None and math.isfinite(self.loss) else None
        return {
            "fraction": self.fraction,
            "epoch": self.shown_epoch,
            "total_epochs": self.total_epochs,
            "step": self.step,
            "total_steps": self.total_steps,
            "loss": loss,
            "eta_seconds": self.eta_seconds,
            "message": self.message,
        }


def update_progress(progress: Progress, line: LineValues, now: float) -> Progress:
    """Return the progress after a line; `now` is a monotonic clock in seconds."""
    if line.bare and not _bar_counts(progress, line):
        return progress
    after = _position(progress, line)
    fraction, source = _fraction(after, line)
    if fraction is not None and source >= progress.source:
        after = _moved(replace(after, source=source), min(1.0, max(0.0, fraction)), now)
    loss = _loss(line.metrics)
    after = after if loss is None else replace(after, loss=loss)
    return replace(after, message=_message(after))


def _bar_counts(progress: Progress, line: LineValues) -> bool:
    if progress.source > _BARE or (progress.epoch is not None and progress.total_epochs):
        return False
    if progress.source < _BARE or line.total_steps == progress.total_steps:
        return True
    # Another bar beside the current one: the longer one counts, unless the current one is done.
    return progress.fraction == 1.0 or (line.total_steps or 0) > (progress.total_steps or 0)


def _position(progress: Progress, line: LineValues) -> Progress:
    if line.epoch is not None:
        progress = replace(progress, epoch=line.epoch, from_zero=_from_zero(progress, line))
    if line.total_epochs is not None:
        progress = replace(progress, total_epochs=line.total_epochs)
    if line.step is not None:
        progress = replace(progress, step=line.step, total_steps=line.total_steps or progress.total_steps)
    elif line.total_steps is not None:
        progress = replace(progress, total_steps=line.total_steps)
    return progress


def _from_zero(progress: Progress, line: LineValues) -> bool:
    """Return whether epochs count from 0. Fractional epochs do not show it, because they always begin at 0.0."""
    if isinstance(line.epoch, float):
        return False
    return progress.from_zero or line.from_zero or line.epoch == 0


def _fraction(after: Progress, line: LineValues) -> tuple[Optional[float], int]:
    if line.epoch is not None and after.total_epochs:
        return (_epochs_done(after, line) / after.total_epochs, _EPOCHS)
    if line.step is not None and after.total_steps and not line.within_epoch:
        return (line.step / after.total_steps, _BARE if line.bare else _STEPS)
    return (None, 0)


def _epochs_done(after: Progress, line: LineValues) -> float:
    assert line.epoch is not None
    if isinstance(line.epoch, float):
        return line.epoch
    before = line.epoch if after.from_zero else line.epoch - 1
    if line.within_epoch and line.step is not None and line.total_steps:
        return before + min(1.0, line.step / line.total_steps)
    # A line with metrics is printed after the epoch, one without at its beginning.
    return before + (1 if line.metrics and line.step is None else 0)


def _moved(progress: Progress, fraction: float, now: float) -> Progress:
    rate = _measured(progress.rate, fraction, now)
    eta = (1 - fraction) / rate.per_second if rate.per_second else None
    return replace(progress, fraction=fraction, rate=rate, eta_seconds=0.0 if fraction == 1.0 else eta)


def _measured(rate: Optional[Rate], fraction: float, now: float) -> Rate:
    if rate is None or fraction < rate.fraction or now < rate.at:
        return Rate(fraction, now)
    passed = now - rate.at
    if passed < MEASURED_OVER or fraction == rate.fraction:
        return rate
    measured = (fraction - rate.fraction) / passed
    if rate.per_second is None:
        return Rate(fraction, now, measured)
    weight = 1 - math.exp(-passed / SMOOTHED_OVER)
    return Rate(fraction, now, rate.per_second + weight * (measured - rate.per_second))


def _loss(metrics: Metrics) -> Optional[float]:
    values = dict(metrics)
    known = next((values[name] for name in _LOSSES if name in values), None)
    if known is not None:
        return known
    return next((value for name, value in metrics if name.endswith("loss") and not _HELD_OUT.match(name)), None)


def _message(progress: Progress) -> str:
    if progress.source <= _BARE and progress.epoch is None and progress.fraction is not None:
        return f"Running {progress.step}/{progress.total_steps}"
    if progress.shown_epoch is not None:
        of = f"/{progress.total_epochs}" if progress.total_epochs else ""
        return f"Training epoch {progress.shown_epoch:g}{of}"
    if progress.step is not None:
        return f"Training step {progress.step}" + (f"/{progress.total_steps}" if progress.total_steps else "")
    return "Training"
