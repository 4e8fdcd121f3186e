"""The API client of simulated users. Responses may be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from crucible.simulation.faults.fault_rates import FaultRates
from crucible.simulation.faults.world.network import NoAnswer
from crucible.simulation.faults.world.process import Crash
from crucible.simulation.faults.world.servers import PacedControl, Servers, call_with

T = TypeVar("T")

REQUEST_SECONDS = 30.0


@dataclass(frozen=True)
class ApiClient:
    """Sends requests of users to a running server."""

    servers: Servers
    faults: FaultRates

    async def ask(self, request: Callable[[PacedControl], Awaitable[T]]) -> T:
        """Return the response of some server.

        Raises NoAnswer without a response; the request may have taken effect, or may do so later.
        """
        server = self.servers.any()
        if server is None:
            raise NoAnswer("nobody listens")
        task = server.process.start(call_with(request, server.control))
        done, _ = await asyncio.wait({task}, timeout=REQUEST_SECONDS)
        if not done or task.cancelled():
            raise NoAnswer("there was no answer")
        if isinstance(task.exception(), Crash) or self.faults.strikes("answer.lost"):
            raise NoAnswer("the answer was lost")
        return task.result()
