"""The network between agents and the control plane: it loses, delays, doubles and cuts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from crucible.control.agents.agents import Agents
from crucible.control.agents.ingest import Gap
from crucible.core.errors import CrucibleError
from crucible.simulation.faults.fault_rates import Dice, Weather
from crucible.simulation.faults.world.process import Crash

T = TypeVar("T")
Request = Callable[[Agents], Awaitable[T]]

CONNECT_SECONDS = 10.0


class Lost(Exception):
    """There was no answer, or one that says to try again. What was asked may have been done."""


class Refused(Exception):
    """The answer is no."""


class Gone(Exception):
    """The answer is that the machine or the attempt is not wanted any more."""


@dataclass
class Line:
    """A machine's way to the control plane. While it is `cut` nothing passes, in either direction."""

    cut: bool = False


class Doors(Protocol):
    def answer(self, request: Request[T]) -> asyncio.Task[T] | None:
        """The request, being answered by some server; None when none is there."""


class Network:
    def __init__(self, doors: Doors, weather: Weather, dice: Dice) -> None:
        self._doors = doors
        self._weather = weather
        self._dice = dice

    async def call(self, line: Line, request: Request[T], deadline: float) -> T:
        """The answer. Raises Lost, Refused, Gone and Gap."""
        await self._travel(line)
        if self._weather.strikes("request.lost"):
            await asyncio.sleep(CONNECT_SECONDS)
            raise Lost("the request was lost")
        if self._weather.strikes("request.late"):
            self._again(request)
            raise Lost("the request is late")
        if self._weather.strikes("request.twice"):
            self._again(request)
        answer = await self._ask(request, deadline)
        await self._travel(line)
        if self._weather.strikes("answer.lost"):
            raise Lost("the answer was lost")
        return answer

    async def _travel(self, line: Line) -> None:
        if line.cut:
            await asyncio.sleep(CONNECT_SECONDS)
            raise Lost("the line is cut")
        await asyncio.sleep(self._dice.between(0.005, 0.2))

    async def _ask(self, request: Request[T], deadline: float) -> T:
        task = self._doors.answer(request)
        if task is None:
            raise Lost("nobody listens")
        done, _ = await asyncio.wait({task}, timeout=deadline)
        if not done or task.cancelled():
            raise Lost("there was no answer")
        error = task.exception()
        if error is None:
            return task.result()
        raise _told(error)

    def _again(self, request: Request[T]) -> None:
        """A copy of the request arrives some time later, when others have overtaken it."""
        loop = asyncio.get_running_loop()
        loop.call_later(self._dice.between(0.0, 90.0), self._doors.answer, request)


def _told(error: BaseException) -> BaseException:
    """What an agent makes of a failure, as it does of the answer's status."""
    if isinstance(error, Crash):
        return Lost("the server died")
    if isinstance(error, Gap):
        return error
    if not isinstance(error, CrucibleError):
        return error
    if error.http_status == 410:
        return Gone(str(error))
    return Lost(str(error)) if error.http_status >= 500 else Refused(str(error))


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    """A body, as it is sent."""
    yield data
