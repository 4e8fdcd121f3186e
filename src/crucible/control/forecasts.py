"""Forecasts: what plans said of how long programs take, remembered until a job follows one of them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import astuple, dataclass
from threading import Lock

from crucible.core.routing.experience import Like

KEPT = 4096


@dataclass(frozen=True)
class Forecast:
    """Of one program (`program` with its arguments) at one kind of machine.

    `analytic` are the seconds of computing that the model says, `predicted` those that were told.
    """

    program: str
    like: Like
    backend: str
    instance_type: str
    analytic: float
    predicted: float

    @property
    def id(self) -> str:
        """The same for the same forecast, so that asking while somebody types remembers it once."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()[:32]


class Forecasts:
    """The newest ones, in memory: what a server forgets teaches nothing. Asked from several threads."""

    def __init__(self, kept: int = KEPT) -> None:
        self._most = kept
        self._kept: OrderedDict[str, Forecast] = OrderedDict()
        self._lock = Lock()

    def remember(self, forecast: Forecast) -> str:
        with self._lock:
            self._kept[forecast.id] = forecast
            self._kept.move_to_end(forecast.id)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return forecast.id

    def of(self, plan: str) -> Forecast | None:
        with self._lock:
            return self._kept.get(plan)
