"""Frames with the new output and points of a job, from what a follower has received already."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from crucible.core.views.frames import LogFrame, NewPointsView, PointsFrame
from crucible.core.views.records import MetricsView, SeriesView


class LogDecoder:
    """Decodes the output of one attempt, never cutting a character in two.

    `cursor` is the offset after the last byte that was sent as text: a client that resumes there misses nothing.
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
        """Yield the frame for the next bytes; none while they are only the beginning of a character."""
        self.offset += len(data)
        text = self._decoder.decode(data, final=last)
        if text:
            yield LogFrame(attempt=self.attempt, cursor=self.cursor, text=text)


class PointCursor:
    """Counts the points of each series that were sent. Points are identified by their position alone.

    `from` in a frame is the position of its first point: 0 redraws the series, more continues it.
    """

    def __init__(self) -> None:
        self._attempt: object = None
        self._counts: dict[str, int] = {}
        self.lagging: list[str] = []
        """Series whose last reading began after points that were not sent yet."""
        self.grown = 0
        """The most points that a series gained in the last reading."""

    @property
    def begun(self) -> bool:
        return bool(self._counts)

    def frames(self, metrics: MetricsView, *, drawn: bool) -> Iterator[PointsFrame]:
        """Yield a frame with the new points of each series, if there are any.

        `drawn`: the points may be thinned. Thinned points have no known position, so their series is sent again from
        the start.
        """
        if metrics.attempt != self._attempt:
            self._attempt, self._counts = metrics.attempt, {}
        new = {name: series for name, series in metrics.series.items() if series.count > self._counts.get(name, 0)}
        self.grown = max((series.count - self._counts.get(name, 0) for name, series in new.items()), default=0)
        parts = {name: self._part(name, series, drawn) for name, series in new.items()}
        self.lagging = [name for name, part in parts.items() if part is None]
        sent = {name: part for name, part in parts.items() if part is not None}
        self._counts.update((name, part.count) for name, part in sent.items())
        if sent:
            yield PointsFrame(series=sent)

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
