"""The network between agents and the control plane: it loses, delays and duplicates requests, and cuts links."""

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
    """Raised without a response, or with one that asks for a retry. The request may have taken effect."""


class RequestRefused(Exception):
    """Raised if the control plane refused the request."""


class NotWanted(Exception):
    """Raised if the machine or the attempt is not wanted any more."""


@dataclass
class NetworkLink:
    """A machine's connection to the control plane. While it is `cut` nothing passes in either direction.

    `behind`: the link of the computer on which the machine is.
    """

    cut: bool = False
    behind: NetworkLink | None = None

    @property
    def is_cut(self) -> bool:
        return self.cut or (self.behind is not None and self.behind.is_cut)


class RequestHandler(Protocol):
    """The servers, as seen from the network."""

    def answer(self, request: Request[T]) -> asyncio.Task[T] | None:
        """Return the task in which some server answers the request, or None if none is up."""


class Network:
    """Carries requests of agents to the servers, with faults."""

    def __init__(self, servers: RequestHandler, faults: FaultRates, rng: RandomStream) -> None:
        self._servers = servers
        self._faults = faults
        self._rng = rng

    async def call(self, link: NetworkLink, request: Request[T], deadline: float) -> T:
        """Return the response. Raises NoAnswer, RequestRefused, NotWanted and Gap."""
        await self._travel(link)
        if self._faults.strikes("request.lost"):
            await asyncio.sleep(CONNECT_SECONDS)
            raise NoAnswer("the request was lost")
        if self._faults.strikes("request.late"):
            self._send_copy(request)
            raise NoAnswer("the request is late")
        if self._faults.strikes("request.twice"):
            self._send_copy(request)
        answer = await self._ask(request, deadline)
        await self._travel(link)
        if self._faults.strikes("answer.lost"):
            raise NoAnswer("the answer was lost")
        return answer

    async def _travel(self, link: NetworkLink) -> None:
        if link.is_cut:
            await asyncio.sleep(CONNECT_SECONDS)
            raise NoAnswer("the line is cut")
        await asyncio.sleep(self._rng.uniform(0.005, 0.2))

    async def _ask(self, request: Request[T], deadline: float) -> T:
        task = self._servers.answer(request)
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
        """Deliver a copy of the request some time later, when others have overtaken it."""
        loop = asyncio.get_running_loop()
        loop.call_later(self._rng.uniform(0.0, 90.0), self._servers.answer, request)


def _to_agent_error(error: BaseException) -> BaseException:
    """Return the error that an agent would raise for the status of this failure."""
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
    """Yield a request body as a stream."""
    yield data
