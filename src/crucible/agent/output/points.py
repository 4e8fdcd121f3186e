"""Buffer the points of a job's series, from its output and its reports, until they are sent."""

from __future__ import annotations

import math
from typing import Union

MAX_PENDING = 20_000
MESSAGE_POINTS = 1000
MAX_SERIES = 1000
MAX_NAME = 200
HELD_SECONDS = 2.0
"""Delay for printed points: a program that prints and reports a value does both within this time."""

Value = Union[None, float, str]
Points = dict[str, list[list[object]]]


class PointBuffer:
    """A buffer of points, bounded in memory. `at` is the time of a point, `now` a monotonic clock in seconds.

    Once a name is reported, it is no longer read from the output, and its unsent printed points are dropped: a program
    that prints its loss and reports it gets one series with each point once.
    """

    def __init__(self) -> None:
        self._points: Points = {}
        self._pending = 0
        self._counts: dict[str, int] = {}
        self._reported: set[str] = set()
        self._printed_since: dict[str, float] = {}

    def add_reported(self, name: str, step: int | None, value: float, at: float) -> None:
        name = _cut(name)
        if name not in self._reported:
            self._reported.add(name)
            if self._printed_since.pop(name, None) is not None:
                self._drop(name)
        self._add(name, step, value, at)

    def add_printed(self, name: str, step: int | None, value: float, at: float, now: float) -> None:
        name = _cut(name)
        if name in self._reported:
            return
        if self._add(name, step, value, at):
            self._printed_since.setdefault(name, now)

    def take(self, now: float, last: bool = False) -> Points | None:
        """Return the next points, as many as fit into a message, or None. `last`: do not hold back printed points."""
        taken: Points = {}
        room = MESSAGE_POINTS
        for name in list(self._points):
            if room <= 0:
                break
            if not last and now - self._printed_since.get(name, -math.inf) < HELD_SECONDS:
                continue
            points = self._points.pop(name)
            taken[name], left = points[:room], points[room:]
            room -= len(taken[name])
            if left:
                self._points[name] = left
        self._pending -= MESSAGE_POINTS - room
        return taken or None

    def _add(self, name: str, step: int | None, value: float, at: float) -> bool:
        if name not in self._counts and len(self._counts) >= MAX_SERIES:
            return False
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        self._points.setdefault(name, []).append([count if step is None else step, _json(value), at])
        self._pending += 1
        if self._pending > MAX_PENDING:
            self._halve()
        return True

    def _drop(self, name: str) -> None:
        dropped = len(self._points.pop(name, ()))
        self._pending -= dropped
        self._counts[name] -= dropped

    def _halve(self) -> None:
        """Drop every other point, because the job reports faster than points can be sent."""
        self._points = {name: points[-1::-2][::-1] for name, points in self._points.items()}
        self._pending = sum(len(points) for points in self._points.values())


def _cut(name: str) -> str:
    return name[:MAX_NAME].encode("utf-8", "replace").decode()


def _json(value: float) -> Value:
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value
