"""The values that a line of output holds, and which names count as metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional, Union

Epoch = Union[int, float]
Metrics = tuple[tuple[str, float], ...]

MAX_METRICS = 64

_EXPONENT = r"(?:[eE][-+]?\d{1,4})?"
NUMBER = rf"[-+]?(?:\d{{1,20}}(?:\.\d{{0,20}})?{_EXPONENT}|\.\d{{1,20}}{_EXPONENT}|[nN]a[nN]|[iI]nf(?:inity)?)"
"""Matches a number. Every repetition is bounded, so that no text makes matching slow."""


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOT_METRICS = word_set(
    "epoch epochs train_epoch step steps iter iters iteration iterations it batch batches global_step "
    "total_steps total_epochs max_steps num_steps v_num eta time elapsed remaining date timestamp ts "
    "asctime lineno line pid rank local_rank world_size worker gpu device port seed version level code status"
)


@dataclass(frozen=True)
class LineValues:
    """Epochs and steps as printed (some programs count from 0), and metrics by name.

    `within_epoch`: the step counts from the start of the epoch. `bare`: the values come from a bar without metrics,
    which may show any work; they count only while nothing better is known. `from_zero`: the first epoch is 0, which the
    numbers alone do not show after a resume.
    """

    step: Optional[int] = None
    epoch: Optional[Epoch] = None
    total_steps: Optional[int] = None
    total_epochs: Optional[int] = None
    metrics: Metrics = ()
    within_epoch: bool = False
    bare: bool = False
    from_zero: bool = False


def clean_metrics(pairs: Iterable[tuple[str, float]]) -> Metrics:
    """Return the pairs that are metrics: the last value of each name, at most MAX_METRICS."""
    kept = {name: value for name, value in pairs if name and name.lower() not in _NOT_METRICS}
    return tuple(kept.items())[:MAX_METRICS]


def count(text: Optional[str]) -> Optional[int]:
    """Return a count of steps or epochs; None if there is none, or it is too large to be one."""
    return int(text) if text and len(text) <= 15 and text.isdecimal() else None


def normal_name(name: str) -> str:
    """Return the name of the series: `Train Loss` and `train loss` are both `train_loss`."""
    return re.sub(r"\s+", "_", name.strip().lower())


_STRONG = word_set("loss losses accuracy acc ppl perplexity f1 auc auroc bleu rmse miou bpb bpc elbo nll")
_WEAK = word_set(
    "lr learning_rate mfu mse mae iou map precision recall reward grad_norm gradnorm norm dice psnr ssim fid "
    "wer cer kl top1 top5 rouge entropy return score tokens throughput error"
)
_PARTS = re.compile(r"[_/.\-@\s]")


def is_strong(name: str) -> bool:
    """Return whether the name is surely a metric, on any line: `val_loss`, `acc@1`, `train/accuracy`."""
    return not _STRONG.isdisjoint(_PARTS.split(name.lower()))


def is_known(name: str) -> bool:
    """Return whether the name is a metric on a line that also has a step or an epoch."""
    lowered = name.lower()
    return is_strong(lowered) or lowered in _WEAK or not _WEAK.isdisjoint(_PARTS.split(lowered))
