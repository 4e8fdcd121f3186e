"""Frames of a socket: JSON texts that name their stream and the cursor to go on from."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from typing import Any

from crucible.control.views import View
from crucible.server.answers import to_json


def event(item: View, cursor: str) -> str:
    return to_json({"stream": "event", "cursor": item[cursor], "event": item})


def log(attempt: int, cursor: int, text: str) -> str:
    return to_json({"stream": "log", "attempt": attempt, "cursor": cursor, "text": text})


def job(view: View) -> str:
    return to_json({"stream": "job", "job": view})


def health(value: View) -> str:
    return to_json({"stream": "health", "health": value})


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
    """How many points of each series were given out. They are told apart by their place in it alone.

    `from` in a frame is the place of its first point: 0 draws the series anew, more goes on from there.
    """

    def __init__(self) -> None:
        self._attempt: object = None
        self._counts: dict[str, int] = {}
        self.lagging: list[str] = []
        """The series whose last reading began after points that were not given out yet."""
        self.grown = 0
        """How many points a series had more in the last reading, at most."""

    @property
    def begun(self) -> bool:
        return bool(self._counts)

    def frames(self, found: View, *, drawn: bool) -> Iterator[str]:
        """A frame with the series that have new points, each with these alone.

        `drawn` says that the points may be thinned. Those that are have no known place: the series is given
        out anew, as they draw it.
        """
        if found["attempt"] != self._attempt:
            self._attempt, self._counts = found["attempt"], {}
        new = {name: one for name, one in found["series"].items() if one["count"] > self._counts.get(name, 0)}
        self.grown = max((one["count"] - self._counts.get(name, 0) for name, one in new.items()), default=0)
        parts = {name: self._part(name, one, drawn) for name, one in new.items()}
        self.lagging = [name for name, part in parts.items() if part is None]
        given = {name: part for name, part in parts.items() if part is not None}
        self._counts.update((name, one["count"]) for name, one in given.items())
        if given:
            yield points(given)

    def _part(self, name: str, one: Mapping[str, Any], drawn: bool) -> dict[str, Any] | None:
        known, first = self._counts.get(name, 0), one["count"] - len(one["points"])
        if drawn and first > 0:
            return {**one, "from": 0}
        if first > known:
            return None
        return {**one, "from": known, "points": one["points"][known - first :]}
