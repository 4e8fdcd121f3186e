"""Frames of a socket: JSON texts that name their stream and the cursor to go on from."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from typing import Any

from crucible.server.answers import to_json
from crucible.server.ports import View

DETAILS = frozenset({"recent_logs", "metrics"})
"""Parts of a job's view that have streams of their own."""


def event(item: View, cursor: str) -> str:
    return to_json({"stream": "event", "cursor": item[cursor], "event": item})


def log(attempt: int, cursor: int, text: str) -> str:
    return to_json({"stream": "log", "attempt": attempt, "cursor": cursor, "text": text})


def job(view: View) -> str:
    return to_json({"stream": "job", "job": {name: view[name] for name in view if name not in DETAILS}})


def progress(value: Mapping[str, Any]) -> str:
    return to_json({"stream": "progress", "progress": value})


def points(series: Mapping[str, Any]) -> str:
    return to_json({"stream": "points", "series": series})


class LogText:
    """Output of one attempt turned into text, never cutting a character in two.

    `cursor` is the offset after the last byte that was given out as text: who resumes there misses nothing.
    """

    def __init__(self, attempt: int, offset: int) -> None:
        self.attempt = attempt
        self.offset = offset
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def cursor(self) -> int:
        held, _ = self._decoder.getstate()
        return self.offset - len(held)

    def frames(self, data: bytes, *, last: bool = False) -> Iterator[str]:
        """The frame for the next bytes; none while they are only the beginning of a character."""
        self.offset += len(data)
        text = self._decoder.decode(data, final=last)
        if text:
            yield log(self.attempt, self.cursor, text)


class Points:
    """Which points of each series were given out already."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._last: dict[str, float] = {}

    def frames(self, series: Mapping[str, Any]) -> Iterator[str]:
        """A frame with the series that have changed, each with its new points alone."""
        changed = {name: self._new(name, one) for name, one in series.items() if self._changed(name, one)}
        if changed:
            yield points(changed)

    def _changed(self, name: str, one: Mapping[str, Any]) -> bool:
        return bool(one["count"] != self._counts.get(name, 0))

    def _new(self, name: str, one: Mapping[str, Any]) -> dict[str, Any]:
        self._counts[name] = one["count"]
        known = self._last.get(name)
        fresh = [p for p in one["points"] if known is None or p[2] > known]
        if fresh:
            self._last[name] = fresh[-1][2]
        return {**one, "points": fresh}
