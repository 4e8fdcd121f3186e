"""What one follower has of a job's output and points already, and the frames with what is new."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from crucible.core.views.frames import LogFrame, NewPointsView, PointsFrame
from crucible.core.views.records import MetricsView, SeriesView


class LogDecoder:
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

    def frames(self, data: bytes, *, last: bool = False) -> Iterator[LogFrame]:
        """The frame for the next bytes; none while they are only the beginning of a character."""
        self.offset += len(data)
        text = self._decoder.decode(data, final=last)
        if text:
            yield LogFrame(attempt=self.attempt, cursor=self.cursor, text=text)


class PointCursor:
    """How many points of each series were given out. They are identified by their position alone.

    `from` in a frame is the position of its first point: 0 redraws the series, more continues it.
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

    def frames(self, found: MetricsView, *, drawn: bool) -> Iterator[PointsFrame]:
        """A frame with the series that have new points, each with these alone.

        `drawn` says that the points may be thinned. Those that are have no known position: the series is given
        out anew, as they draw it.
        """
        if found.attempt != self._attempt:
            self._attempt, self._counts = found.attempt, {}
        new = {name: one for name, one in found.series.items() if one.count > self._counts.get(name, 0)}
        self.grown = max((one.count - self._counts.get(name, 0) for name, one in new.items()), default=0)
        parts = {name: self._part(name, one, drawn) for name, one in new.items()}
        self.lagging = [name for name, part in parts.items() if part is None]
        given = {name: part for name, part in parts.items() if part is not None}
        self._counts.update((name, one.count) for name, one in given.items())
        if given:
            yield PointsFrame(series=given)

    def _part(self, name: str, series: SeriesView, drawn: bool) -> NewPointsView | None:
        known, first = self._counts.get(name, 0), series.count - len(series.points)
        if drawn and first > 0:
            return _points_from(0, series, 0)
        return None if first > known else _points_from(known, series, known - first)


def _points_from(first: int, series: SeriesView, skipped: int) -> NewPointsView:
    return NewPointsView(
        first=first,
        count=series.count,
        last=series.last,
        min=series.min,
        max=series.max,
        points=series.points[skipped:],
    )
