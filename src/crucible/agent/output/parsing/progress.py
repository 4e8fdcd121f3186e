"""How far a job is: a fold over what its output said."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Optional, Union

from crucible.agent.output.parsing.line_values import Epoch, LineValues, Metrics

SMOOTHED_OVER = 60.0
"""Seconds: how far back the rate remembers."""

MEASURED_OVER = 1.0
"""Seconds between two measures of the rate; shorter ones are noise."""

_BARE, _STEPS, _EPOCHS = 1, 2, 3

_LOSSES = ("loss", "train_loss", "training_loss", "train/loss", "train_loss_step", "avg_loss", "average_loss")

_HELD_OUT = re.compile(r"val|eval|test|dev")

Value = Union[None, int, float, str]


@dataclass(frozen=True)
class Rate:
    """Fraction per second, smoothed; `fraction` and `at` are the last measure."""

    fraction: float
    at: float
    per_second: Optional[float] = None


@dataclass(frozen=True)
class Progress:
    """What is shown of a running job. `fraction` is 0..1, or None while no total is known.

    Epochs of a total count most, then steps of a total; a bare bar counts only while there is neither. `epoch` is
    as the program counts; `shown_epoch` is what everybody is told, so that the last of two is 2 of 2.
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
        """Counted from 1, whatever the program begins with; a part of an epoch stays as it is."""
        counted = self.from_zero and isinstance(self.epoch, int)
        return self.epoch + 1 if counted and self.epoch is not None else self.epoch

    def as_dict(self) -> dict[str, Value]:
        """The fields of a PROGRESS message; a loss that is no finite number is left out, as JSON has none."""
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


def update_progress(progress: Progress, seen: LineValues, now: float) -> Progress:
    """`progress` after a line said `seen`; `now` is a monotonic clock in seconds."""
    if seen.bare and not _bar_counts(progress, seen):
        return progress
    after = _position(progress, seen)
    fraction, source = _fraction(after, seen)
    if fraction is not None and source >= progress.source:
        after = _moved(replace(after, source=source), min(1.0, max(0.0, fraction)), now)
    loss = _loss(seen.metrics)
    after = after if loss is None else replace(after, loss=loss)
    return replace(after, message=_message(after))


def _bar_counts(progress: Progress, seen: LineValues) -> bool:
    if progress.source > _BARE or (progress.epoch is not None and progress.total_epochs):
        return False
    if progress.source < _BARE or seen.total_steps == progress.total_steps:
        return True
    # Another bar beside the one followed: the longer one is the work, unless the followed one is done.
    return progress.fraction == 1.0 or (seen.total_steps or 0) > (progress.total_steps or 0)


def _position(progress: Progress, seen: LineValues) -> Progress:
    if seen.epoch is not None:
        progress = replace(progress, epoch=seen.epoch, from_zero=_from_zero(progress, seen))
    if seen.total_epochs is not None:
        progress = replace(progress, total_epochs=seen.total_epochs)
    if seen.step is not None:
        progress = replace(progress, step=seen.step, total_steps=seen.total_steps or progress.total_steps)
    elif seen.total_steps is not None:
        progress = replace(progress, total_steps=seen.total_steps)
    return progress


def _from_zero(progress: Progress, seen: LineValues) -> bool:
    """Parts of an epoch say themselves how much is done: of them 0 is a beginning, not the first."""
    if isinstance(seen.epoch, float):
        return False
    return progress.from_zero or seen.from_zero or seen.epoch == 0


def _fraction(after: Progress, seen: LineValues) -> tuple[Optional[float], int]:
    if seen.epoch is not None and after.total_epochs:
        return (_epochs_done(after, seen) / after.total_epochs, _EPOCHS)
    if seen.step is not None and after.total_steps and not seen.within_epoch:
        return (seen.step / after.total_steps, _BARE if seen.bare else _STEPS)
    return (None, 0)


def _epochs_done(after: Progress, seen: LineValues) -> float:
    assert seen.epoch is not None
    if isinstance(seen.epoch, float):
        return seen.epoch
    before = seen.epoch if after.from_zero else seen.epoch - 1
    if seen.within_epoch and seen.step is not None and seen.total_steps:
        return before + min(1.0, seen.step / seen.total_steps)
    # A line with results is printed after the epoch, one without when it begins.
    return before + (1 if seen.metrics and seen.step is None else 0)


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
