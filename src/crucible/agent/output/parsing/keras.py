"""Parse the output of Keras 2 and 3, with verbose 1 and 2.

    Epoch 3/10
    12/100 [==>...........................] - ETA: 3s - loss: 0.1234 - accuracy: 0.9012
    100/100 ━━━━━━━━━━━━━━━━━━━━ 1s 5ms/step - accuracy: 0.9012 - loss: 0.1234 - val_loss: 0.2345
    100/100 - 1s - 5ms/step - loss: 0.1234

The epoch is on a separate line, so it is remembered for the bars that follow.
"""

from __future__ import annotations

import re
from typing import Optional

from crucible.agent.output.parsing.line_values import NUMBER, LineValues, Metrics, clean_metrics, count

_EPOCH = re.compile(r"Epoch (\d{1,9})/(\d{1,9})\s{0,4}$")
_STEP = re.compile(
    r"\s{0,8}(\d{1,15})/(\d{1,15}|Unknown|None)\s{1,4}"
    r"(?:\[[=>.]{1,200}\]|[━╸╺─]{1,200}|(?=- \d{1,9}m?s(?:/\w{4,5})? - ))"
)
_METRIC = re.compile(rf" - ([A-Za-z_][\w./@-]{{0,60}}): ({NUMBER})(?=\s|$)")


class Keras:
    """A parser that remembers the last epoch line."""

    def __init__(self) -> None:
        self._epoch: Optional[int] = None
        self._total_epochs: Optional[int] = None
        self._steps: Optional[int] = None

    def parse(self, line: str) -> Optional[LineValues]:
        epoch = _EPOCH.match(line)
        if epoch is not None:
            self._epoch, self._total_epochs, self._steps = int(epoch[1]), int(epoch[2]), None
            return LineValues(epoch=self._epoch, total_epochs=self._total_epochs)
        bar = _STEP.match(line)
        return None if bar is None else self._bar(count(bar[1]), count(bar[2]), line)

    def _bar(self, step: Optional[int], total: Optional[int], line: str) -> Optional[LineValues]:
        metrics: Metrics = clean_metrics((name, float(value)) for name, value in _METRIC.findall(line))
        if self._epoch is None:
            return LineValues(step, None, total, None, metrics, bare=not metrics)
        if self._steps is None:
            self._steps = total
        if total != self._steps or not metrics:
            # A bar with another number of steps after the epoch's own: an evaluation or a prediction.
            return LineValues(metrics=metrics) if metrics else None
        return LineValues(step, self._epoch, total, self._total_epochs, metrics, within_epoch=True)
