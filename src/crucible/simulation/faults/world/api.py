"""The door: how people reach the control plane. Not every answer comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from crucible.control.control_plane import ControlPlane
from crucible.simulation.faults.fault_rates import Weather
from crucible.simulation.faults.world.network import Lost
from crucible.simulation.faults.world.process import Crash
from crucible.simulation.faults.world.servers import Servers, answered

T = TypeVar("T")

REQUEST_SECONDS = 30.0


@dataclass(frozen=True)
class Door:
    servers: Servers
    weather: Weather

    async def ask(self, request: Callable[[ControlPlane], Awaitable[T]]) -> T:
        """The answer of some server. Raises Lost, after which what was asked may have been done, or may be yet."""
        server = self.servers.any()
        if server is None:
            raise Lost("nobody listens")
        task = server.process.start(answered(request, server.control))
        done, _ = await asyncio.wait({task}, timeout=REQUEST_SECONDS)
        if not done or task.cancelled():
            raise Lost("there was no answer")
        if isinstance(task.exception(), Crash) or self.weather.strikes("answer.lost"):
            raise Lost("the answer was lost")
        return task.result()
