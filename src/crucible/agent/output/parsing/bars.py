"""Parse progress bars: tqdm, also as Lightning and Hugging Face print it, and Lightning's rich bar.

    45%|████      | 45/100 [00:10<00:12, 4.5it/s, loss=0.12]
    Epoch 3:  45%|████      | 45/100 [00:10<00:12, 4.5it/s, v_num=0, train_loss=0.123]
    Epoch 3/9 ━━━━━━━━━━━━ 45/100 0:00:10 • 0:00:12 4.5it/s v_num: 0 train_loss: 0.123

A bar that counts bytes, or whose label names a download, tokenizing, evaluation or the like, is not training progress.
Any other bar without metrics is `bare`.
"""

from __future__ import annotations

import re
from typing import Optional

from crucible.agent.output.parsing.line_values import NUMBER, LineValues, Metrics, clean_metrics, count

_BAR = re.compile(r"(\d{1,3})%\|[^|]{0,300}\|\s{0,4}(\d{1,15})/(\d{1,15})(?: \[([^\]]{0,1000})\]?)?(?=\s|$)")
_BAR_WITHOUT_TOTAL = re.compile(r"(?:^|[ :])(\d{1,15})it \[([^\]]{0,1000})\]")
_RICH = re.compile(r"Epoch (\d{1,9})/(\d{1,9})\s{1,4}[━╸╺─ ]{1,200}\s?(\d{1,15})/(\d{1,15})(?=\s)(.{0,1000})")
_EPOCH = re.compile(r"epoch\s{0,2}[:=]?\s{0,2}\[?(\d{1,9})(?:\s?(?:/|of)\s?(\d{1,9}))?", re.IGNORECASE)
_POSTFIX = re.compile(rf"(?:^|[\s,])([A-Za-z_][\w./@-]{{0,60}})(?:=|: )\s{{0,8}}({NUMBER})%?(?=[\s,\]]|$)")
_BYTE_RATE = re.compile(r"\d[kMGT]?i?B/s")
_NOT_TRAINING = re.compile(
    r"download|upload|fetch|pull|extract|unpack|load|read|map\b|filter|token|generat|sav|writ|cop(?:y|ies)|"
    r"valid|eval|test|predict|infer|sanity|cach|prepar|build|compil|convert|scan|process|creat|resolv|\.\w{2,12}:",
    re.IGNORECASE,
)


def parse(line: str) -> Optional[LineValues]:
    if "%|" in line:
        bar = _BAR.search(line)
        return None if bar is None else _tqdm(line[: bar.start()], bar[2], bar[3], bar[4] or "")
    if "it [" in line:
        counter = _BAR_WITHOUT_TOTAL.search(line)
        return None if counter is None else _tqdm(line[: counter.start()], counter[1], None, counter[2])
    rich = _RICH.search(line)
    return None if rich is None else _rich(rich)


def _tqdm(label: str, step: str, total: Optional[str], inner: str) -> Optional[LineValues]:
    if _BYTE_RATE.search(inner):
        return None
    epoch = _EPOCH.search(label)
    metrics = _metrics(inner)
    if epoch is None and _NOT_TRAINING.search(label):
        return None
    if epoch is not None:
        return LineValues(count(step), int(epoch[1]), count(total), count(epoch[2]), metrics, within_epoch=True)
    if re.match(r"\s*epochs?\b", label, re.IGNORECASE):
        return LineValues(epoch=count(step), total_epochs=count(total), metrics=metrics)
    return LineValues(count(step), None, count(total), None, metrics, bare=not metrics)


def _rich(bar: re.Match[str]) -> LineValues:
    # Lightning counts epochs from 0, and prints the number of the last epoch instead of their count.
    return LineValues(
        count(bar[3]),
        int(bar[1]),
        count(bar[4]),
        int(bar[2]) + 1,
        _metrics(bar[5]),
        within_epoch=True,
        from_zero=True,
    )


def _metrics(text: str) -> Metrics:
    return clean_metrics((name, float(value)) for name, value in _POSTFIX.findall(text))
