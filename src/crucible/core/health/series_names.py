"""What the names of series reveal: whether lower or higher is better, and whether they measure held-out data."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable

_WORD = re.compile(r"[A-Za-z]+\d*|\d+")


def split_words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(name))


_LOWER = split_words(
    "loss losses nll ppl perplexity error err mse mae rmse bpb bpc wer cer fid kl entropy cost latency"
)
_HIGHER = split_words(
    "accuracy acc f1 auc auroc map iou miou precision recall bleu rouge dice psnr ssim reward return score elbo "
    "top1 top5 throughput mfu"
)
_HELD_OUT = split_words("val valid validation eval evaluation test dev holdout")
_TRAINED_ON = split_words("train training trn")
_OPPOSED = split_words("g d gen generator disc discriminator adv adversarial actor critic policy value")
_PLAIN = ("loss", "train_loss", "training_loss", "train/loss", "train_loss_step", "avg_loss", "average_loss")

MOST_SERIES = 8
"""Maximum number of series of a job that are judged."""
SYSTEM = "system."


class Goal(enum.StrEnum):
    LOWER = "lower"
    HIGHER = "higher"


def goal_of(name: str) -> Goal | None:
    """Return which values of a series are better; None if its name does not tell."""
    words = split_words(name)
    if _HIGHER & words and not {"loss", "error"} & words:
        return Goal.HIGHER
    return Goal.LOWER if _LOWER & words else None


def is_loss(name: str) -> bool:
    """Return whether the series is a loss: lower is better, and training minimizes it."""
    return goal_of(name) is Goal.LOWER and not {"latency", "kl", "entropy", "cost"} & split_words(name)


def is_held_out(name: str) -> bool:
    """Return whether the series is measured on held-out data."""
    return bool(_HELD_OUT & split_words(name))


def training_losses(names: Iterable[str]) -> list[str]:
    """Return the losses that training minimizes: the plain one if there is one, else all of them.

    Losses of parts that work against each other, as in a GAN, are left out: they rise and fall in turn.
    """
    found = sorted(
        name for name in names if is_loss(name) and not is_held_out(name) and not _OPPOSED & split_words(name)
    )
    plain = [name for name in _PLAIN if name in found]
    return plain[:1] or found


def training_counterpart(name: str, names: Iterable[str]) -> str | None:
    """Return the training series to compare a held-out one with: `train_loss` or `loss` for `val_loss`; or None."""
    if not is_held_out(name):
        return None
    what = split_words(name) - _HELD_OUT
    same = [other for other in names if not is_held_out(other) and split_words(other) - _TRAINED_ON == what]
    return min(same, key=len, default=None)


def select_series(names: Iterable[str]) -> list[str]:
    """Return the series that a judgement needs, losses first: at most `MOST_SERIES`, and those of the machine."""
    known = sorted(names)
    reported = [name for name in known if not name.startswith(SYSTEM)]
    losses = [name for name in reported if is_loss(name)]
    first = [*training_losses(reported), *(name for name in losses if is_held_out(name)), *losses]
    others = [name for name in reported if goal_of(name) is not None]
    chosen = list(dict.fromkeys([*first, *others, *reported]))[:MOST_SERIES]
    return [*chosen, *[name for name in known if name.startswith(SYSTEM)][: 2 * MOST_SERIES]]
