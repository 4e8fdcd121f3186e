"""The network between agents and the control plane: it loses, delays, doubles and cuts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from crucible.control.agents.agents import Agents
from crucible.control.agents.ingest import Gap
from crucible.core.errors import CrucibleError
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.world.process import Crash

T = TypeVar("T")
Request = Callable[[Agents], Awaitable[T]]

CONNECT_SECONDS = 10.0


class NoAnswer(Exception):
    """There was no answer, or one that says to try again. What was asked may have been done."""


class RequestRefused(Exception):
    """The answer is no."""


class NotWanted(Exception):
    """The answer is that the machine or the attempt is not wanted any more."""


@dataclass
class NetworkLink:
    """A machine's way to the control plane. While it is `cut` nothing passes, in either direction."""

    cut: bool = False


class RequestHandler(Protocol):
    def answer(self, request: Request[T]) -> asyncio.Task[T] | None:
        """The request, being answered by some server; None when none is there."""


class Network:
    def __init__(self, doors: RequestHandler, faults: FaultRates, dice: RandomStream) -> None:
        self._doors = doors
        self._faults = faults
        self._dice = dice

    async def call(self, line: NetworkLink, request: Request[T], deadline: float) -> T:
        """The answer. Raises Lost, Refused, Gone and Gap."""
        await self._travel(line)
        if self._faults.strikes("request.lost"):
            await asyncio.sleep(CONNECT_SECONDS)
            raise NoAnswer("the request was lost")
        if self._faults.strikes("request.late"):
            self._send_copy(request)
            raise NoAnswer("the request is late")
        if self._faults.strikes("request.twice"):
            self._send_copy(request)
        answer = await self._ask(request, deadline)
        await self._travel(line)
        if self._faults.strikes("answer.lost"):
            raise NoAnswer("the answer was lost")
        return answer

    async def _travel(self, line: NetworkLink) -> None:
        if line.cut:
            await asyncio.sleep(CONNECT_SECONDS)
            raise NoAnswer("the line is cut")
        await asyncio.sleep(self._dice.uniform(0.005, 0.2))

    async def _ask(self, request: Request[T], deadline: float) -> T:
        task = self._doors.answer(request)
        if task is None:
            raise NoAnswer("nobody listens")
        done, _ = await asyncio.wait({task}, timeout=deadline)
        if not done or task.cancelled():
            raise NoAnswer("there was no answer")
        error = task.exception()
        if error is None:
            return task.result()
        raise _to_agent_error(error)

    def _send_copy(self, request: Request[T]) -> None:
        """A copy of the request arrives some time later, when others have overtaken it."""
        loop = asyncio.get_running_loop()
        loop.call_later(self._dice.uniform(0.0, 90.0), self._doors.answer, request)


def _to_agent_error(error: BaseException) -> BaseException:
    """What an agent makes of a failure, as it does of the answer's status."""
    if isinstance(error, Crash):
        return NoAnswer("the server died")
    if isinstance(error, Gap):
        return error
    if not isinstance(error, CrucibleError):
        return error
    if error.http_status == 410:
        return NotWanted(str(error))
    return NoAnswer(str(error)) if error.http_status >= 500 else RequestRefused(str(error))


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    """A body, as it is sent."""
    yield data
