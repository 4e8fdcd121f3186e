"""Parse lines of words and numbers: nanoGPT, and hand-written training loops.

    iter 100: loss 2.4543, time 23.11ms, mfu 1.20%
    Epoch [3/10], Step [100/600], Loss: 0.1234
    Train Epoch: 1 [640/60000 (1%)]  Loss: 2.293

A number counts only with evidence around it: a step or an epoch with metrics, `epoch 3/10` as the whole message, or a
name that is surely a metric (`val_loss: 0.5`). A number in prose does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from crucible.agent.output.parsing.line_values import (
    NUMBER,
    LineValues,
    Metrics,
    clean_metrics,
    count,
    is_known,
    is_strong,
    normal_name,
    word_set,
)

_OF = r"\s{0,4}(?:/|\bof\b)\s{0,4}"
_OPEN = r"[\s:=#\[(]{0,4}"
_EPOCH = re.compile(
    rf"(?<![\w.-])epoch{_OPEN}(\d{{1,9}}(?:\.\d{{1,9}})?)(?![\w.]\w|\w)(?:{_OF}(\d{{1,9}}))?", re.IGNORECASE
)
_STEP_OF_EPOCH = re.compile(r"[\])\s:|,-]{0,6}[\[(]?\s{0,6}(?:batch\s)?(\d{1,15})\s?/\s?(\d{1,15})", re.IGNORECASE)
_STEP = re.compile(
    rf"(?<![\w.-])(global[_ ])?(?:step|iter|iteration|batch|update){_OPEN}(\d{{1,15}})(?![\w.]\w|\w)"
    rf"(?:{_OF}(\d{{1,15}}))?",
    re.IGNORECASE,
)
_SPLIT = "train|training|val|valid|validation|test|eval|dev|avg|average|mean|total|running"
_PAIR = re.compile(
    rf"(?<![\w@/.-])((?:(?:{_SPLIT})[ _])?[A-Za-z_][\w@/.-]{{0,60}})"
    rf"(\s{{0,4}}=\s{{0,4}}|\s{{0,4}}:\s{{0,4}}|\s{{1,6}})({NUMBER})%?(?=[\s,;|)\]}}(]|\.?$|\.\s)",
    re.IGNORECASE,
)
_LOOKS_BACK = re.compile(r"\b(?:best|resum|load|restor|sav|from|early|stopp|previous)", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"([A-Za-z]{1,40})\s{1,4}$")
_OPENERS = word_set("train training start starting begin beginning info debug")
_WORDS = re.compile(r"[A-Za-z]{3,}")
_UNITS = word_set("eta step steps epoch iter iters sec secs batch done elapsed remaining time min mins")


def parse(line: str) -> Optional[LineValues]:
    epoch = _EPOCH.search(line)
    step = _STEP.search(line)
    first = min((m.start() for m in (epoch, step) if m is not None), default=0)
    if _LOOKS_BACK.search(line[: first + 1] if first else line[:40]):
        return None
    metrics = clean_metrics(_metrics(line, evident=epoch is not None or step is not None))
    if metrics:
        return _values(line, epoch, step, metrics)
    if epoch is not None and _announces(line, epoch):
        return _values(line, epoch, step, ())
    if step is not None and step[3] and _announces(line, step):
        return _values(line, None, step, ())
    return None


def _values(line: str, epoch: Optional[re.Match[str]], step: Optional[re.Match[str]], metrics: Metrics) -> LineValues:
    at, total = (count(step[2]), count(step[3])) if step is not None else (None, None)
    if epoch is None:
        return LineValues(at, None, total, None, metrics)
    if step is None:
        inner = _STEP_OF_EPOCH.match(line, epoch.end())
        at, total = (count(inner[1]), count(inner[2])) if inner is not None else (None, None)
    number = float(epoch[1]) if "." in epoch[1] else int(epoch[1])
    within = total is not None and not (step is not None and step[1])
    return LineValues(at, number, total, count(epoch[2]), metrics, within_epoch=within)


def _announces(line: str, found: re.Match[str]) -> bool:
    """Return whether a position without metrics is the whole message, and not part of a sentence."""
    before = _WORD_BEFORE.search(line[max(0, found.start() - 44) : found.start()])
    if before is not None and before[1].lower() not in _OPENERS:
        return False
    return {word.lower() for word in _WORDS.findall(line[found.end() :])} <= _UNITS


def _metrics(line: str, evident: bool) -> Iterator[tuple[str, float]]:
    for name, sign, value in _PAIR.findall(line):
        spelled = sign.strip()
        if is_strong(name):
            wanted = bool(spelled) or evident
        else:
            wanted = evident and (bool(spelled) or is_known(name))
        if wanted:
            yield normal_name(name), float(value)
