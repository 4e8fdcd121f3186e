"""What the names of series say: which is better, higher or lower, and which was measured on other data."""

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
"""Series of a job that are looked at."""
SYSTEM = "system."


class Goal(enum.StrEnum):
    LOWER = "lower"
    HIGHER = "higher"


def goal_of(name: str) -> Goal | None:
    """Which values of a series are better; None where its name does not say."""
    words = split_words(name)
    if _HIGHER & words and not {"loss", "error"} & words:
        return Goal.HIGHER
    return Goal.LOWER if _LOWER & words else None


def is_loss(name: str) -> bool:
    """Lower is better, and training is to lower it."""
    return goal_of(name) is Goal.LOWER and not {"latency", "kl", "entropy", "cost"} & split_words(name)


def is_held_out(name: str) -> bool:
    """Measured on data that is not trained on."""
    return bool(_HELD_OUT & split_words(name))


def training_losses(names: Iterable[str]) -> list[str]:
    """The losses that training lowers: the plain one where there is one, else those that say so.

    Losses of parts that work against each other rise and fall in turn; nothing follows from that.
    """
    found = sorted(
        name for name in names if is_loss(name) and not is_held_out(name) and not _OPPOSED & split_words(name)
    )
    plain = [name for name in _PLAIN if name in found]
    return plain[:1] or found


def training_counterpart(name: str, names: Iterable[str]) -> str | None:
    """The training series that a held-out one is to be held against: `val_loss` against `train_loss` or `loss`."""
    if not is_held_out(name):
        return None
    what = split_words(name) - _HELD_OUT
    same = [other for other in names if not is_held_out(other) and split_words(other) - _TRAINED_ON == what]
    return min(same, key=len, default=None)


def select_series(names: Iterable[str]) -> list[str]:
    """The series that a judgement needs, losses first, at most `MOST_SERIES` beside those of the machine."""
    known = sorted(names)
    told = [name for name in known if not name.startswith(SYSTEM)]
    losses = [name for name in told if is_loss(name)]
    first = [*training_losses(told), *(name for name in losses if is_held_out(name)), *losses]
    others = [name for name in told if goal_of(name) is not None]
    chosen = list(dict.fromkeys([*first, *others, *told]))[:MOST_SERIES]
    return [*chosen, *[name for name in known if name.startswith(SYSTEM)][: 2 * MOST_SERIES]]
