"""Parse lines that are one record: JSON, a Python dict as the Hugging Face Trainer prints it, `crucible.report`.

    {"step": 5, "loss": 0.1}
    {'loss': 0.5, 'learning_rate': 5e-05, 'epoch': 0.5}
    {"crucible": 1, "step": 5, "metrics": {"loss": 0.1}}

A record counts if it has a step, an epoch or a name that can only be a metric; a report always counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Optional

from crucible.agent.output.parsing.line_values import NUMBER, Epoch, LineValues, clean_metrics, is_strong

Numbers = dict[str, float]

_ITEM = re.compile(rf"'([^'\\]{{1,80}})': (?:[\w.]{{1,40}}\()?'?({NUMBER})(?=['),}}]|, )")
_STEPS = ("step", "global_step", "iter", "iteration", "train_step", "steps_done")
_TOTAL_STEPS = ("total_steps", "max_steps", "num_steps")
_TOTAL_EPOCHS = ("total_epochs", "max_epochs", "num_epochs", "num_train_epochs")
_POSITIONS = frozenset((*_STEPS, *_TOTAL_STEPS, *_TOTAL_EPOCHS))


def parse(line: str) -> Optional[LineValues]:
    start = line.find("{")
    text = line[start:].rstrip()
    if start < 0 or not text.endswith("}"):
        return None
    document = _load(text)
    if "crucible" in document:
        return _reported(document)
    numbers = _numbers(document)
    evident = any(key in numbers for key in (*_STEPS, "epoch")) or any(is_strong(key) for key in numbers)
    return _values(numbers) if evident else None


def _load(text: str) -> Mapping[str, object]:
    if text.startswith("{'"):
        # Never evaluated: the items of a flat dict are read by a regex; a nested one is not a record of metrics.
        return dict(_ITEM.findall(text)) if text.count("{") == 1 else {}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _numbers(document: Mapping[str, object]) -> Numbers:
    found = {key: _number(value) for key, value in document.items()}
    return {key: value for key, value in found.items() if value is not None}


def _number(value: object) -> Optional[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _reported(document: Mapping[str, object]) -> Optional[LineValues]:
    metrics = document.get("metrics")
    numbers = _numbers(metrics) if isinstance(metrics, dict) else {}
    step = _number(document.get("step"))
    if step is not None:
        numbers["step"] = step
    return replace(_values(numbers), from_zero=document.get("from_zero") is True) if numbers else None


def _values(numbers: Numbers) -> LineValues:
    return LineValues(
        step=_whole(_first(numbers, _STEPS)),
        epoch=_epoch(numbers.get("epoch")),
        total_steps=_whole(_first(numbers, _TOTAL_STEPS)),
        total_epochs=_whole(_first(numbers, _TOTAL_EPOCHS)),
        metrics=clean_metrics((name, value) for name, value in numbers.items() if name not in _POSITIONS),
    )


def _first(numbers: Numbers, keys: tuple[str, ...]) -> Optional[float]:
    return next((numbers[key] for key in keys if key in numbers), None)


def _whole(value: Optional[float]) -> Optional[int]:
    return int(value) if value is not None and 0 <= value < 1e15 and value == int(value) else None


def _epoch(value: Optional[float]) -> Optional[Epoch]:
    if value is None or not 0 <= value < 1e9:
        return None
    return int(value) if value == int(value) else value
