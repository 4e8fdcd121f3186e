"""Which names are metrics."""

from __future__ import annotations

import re

from crucible.agent.output.parsing.line_values import word_set

_STRONG = word_set("loss losses accuracy acc ppl perplexity f1 auc auroc bleu rmse miou bpb bpc elbo nll")
_WEAK = word_set(
    "lr learning_rate mfu mse mae iou map precision recall reward grad_norm gradnorm norm dice psnr ssim fid "
    "wer cer kl top1 top5 rouge entropy return score tokens throughput error"
)
_PARTS = re.compile(r"[_/.\-@\s]")


def is_strong(name: str) -> bool:
    """A name that says metric wherever it stands before a number: `val_loss`, `acc@1`, `train/accuracy`."""
    return not _STRONG.isdisjoint(_PARTS.split(name.lower()))


def is_known(name: str) -> bool:
    """A name that says metric on a line that also has a step or an epoch."""
    lowered = name.lower()
    return is_strong(lowered) or lowered in _WEAK or not _WEAK.isdisjoint(_PARTS.split(lowered))
