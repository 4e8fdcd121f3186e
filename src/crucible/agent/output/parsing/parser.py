"""Parse one line of output."""

from __future__ import annotations

import re
from typing import Optional

from crucible.agent.output.parsing import bars, pairs, records
from crucible.agent.output.parsing.keras import Keras
from crucible.agent.output.parsing.line_values import LineValues

READ_AT_MOST = 4096

_DIGIT = re.compile(r"[0-9]")
_HINTS = (
    "loss",
    "epoch",
    "step",
    "%|",
    "acc",
    "iter",
    "it [",
    "/",
    "{",
    "batch",
    "ppl",
    "perpl",
    "f1",
    "auc",
    "bleu",
)
_COLORS = r"\x1b\[[0-9;?]{0,32}[A-Za-z]"
_TITLES = r"\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)"
_ESCAPES = re.compile(rf"{_COLORS}|{_TITLES}|\x1b[()][A-B0-2]|[\b\x00]")


class OutputParser:
    """Feed it every line, including redraws. It never raises, and reads the first 4 KB of a line, in linear time.

    Formats are tried from the most to the least specific, and the first match wins. The only state is the epoch, which
    Keras prints on a separate line.
    """

    def __init__(self) -> None:
        self._keras = Keras()

    def feed(self, line: str) -> list[LineValues]:
        line = line[:READ_AT_MOST]
        if not _DIGIT.search(line):
            return []
        lowered = line.lower()
        if not any(hint in lowered for hint in _HINTS):
            return []
        if "\x1b" in line or "\b" in line or "\x00" in line:
            line = _ESCAPES.sub("", line)
        seen = self._parse(line)
        return [] if seen is None or seen == LineValues() else [seen]

    def _parse(self, line: str) -> Optional[LineValues]:
        if "{" in line:
            record = records.parse(line)
            if record is not None:
                return record
        if "%|" in line:
            # The label and numbers of a bar must not be parsed as words.
            return bars.parse(line)
        return bars.parse(line) or self._keras.parse(line) or pairs.parse(line)
