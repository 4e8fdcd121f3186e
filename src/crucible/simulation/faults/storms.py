"""Storms: faults that come over the world one after another, until the calm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from crucible.core.offers import Market
from crucible.simulation.faults.cloud import ZONES, Cloud
from crucible.simulation.faults.crew import Crew
from crucible.simulation.faults.laptop import Laptop
from crucible.simulation.faults.machine import Machine
from crucible.simulation.faults.network import Line
from crucible.simulation.faults.ports import WallClock
from crucible.simulation.faults.servers import Servers
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.weather import Dice, Weather

BETWEEN_SECONDS = 60.0
MOST_AHEAD = 120.0
"""Seconds by which the control plane's clock may be wrong; beyond that nobody promises anything."""


class Storms:
    def __init__(
        self,
        weather: Weather,
        cloud: Cloud,
        laptop: Laptop,
        servers: Servers,
        clock: WallClock,
        trace: Trace,
        dice: Dice,
    ) -> None:
        self._weather, self._cloud, self._laptop = weather, cloud, laptop
        self._servers, self._clock, self._trace, self._dice = servers, clock, trace, dice
        self._crew = Crew("storms")
        self._cut: list[Line] = []

    def start(self) -> None:
        self._crew.start(self._blow())

    def end(self) -> None:
        """Whatever was cut is joined again."""
        self._crew.die()
        self._cloud.sold_out.clear()
        for line in self._cut:
            line.cut = False

    async def _blow(self) -> None:
        kinds: tuple[Callable[[], None], ...] = (
            self._provider,
            self._slow,
            self._partition,
            self._partition,
            self._reclaim,
            self._reclaim,
            self._reclaim,
            self._death,
            self._death,
            self._sold_out,
            self._price,
            self._full,
            self._crash,
            self._crash,
            self._stop,
            self._clock_jump,
            self._kill_runner,
            self._halt,
        )
        while True:
            await asyncio.sleep(self._dice.about(BETWEEN_SECONDS))
            self._dice.one(kinds)()

    def _provider(self) -> None:
        self._storm("cloud", self._dice.between(20.0, 300.0))

    def _slow(self) -> None:
        self._storm(f"slow {self._dice.one(('cloud', 'cloud', 'local'))}", self._dice.between(20.0, 300.0))

    def _full(self) -> None:
        self._storm(self._dice.one(("disk", "store")), self._dice.between(10.0, 120.0))

    def _storm(self, name: str, seconds: float) -> None:
        self._trace("weather", f"{name} for {seconds:.0f} s")
        self._weather.storm(name, seconds)

    def _partition(self) -> None:
        machines = self._machines()
        if not machines:
            return
        struck = machines if self._dice.chance(0.2) else [self._dice.one(machines)]
        seconds = self._dice.one((5.0, 60.0, 600.0, 1500.0)) * self._dice.between(0.5, 1.5)
        for machine in struck:
            self._trace("weather", f"{machine.native_id} is cut off for {seconds:.0f} s")
            machine.line.cut = True
            self._cut.append(machine.line)
            self._crew.start(self._join(machine.line, seconds))

    async def _join(self, line: Line, seconds: float) -> None:
        await asyncio.sleep(seconds)
        line.cut = False

    def _machines(self) -> list[Machine]:
        here = [m for token, m in self._laptop.machines.items() if token not in self._laptop.removed]
        return [found.computer for found in self._cloud.living()] + here

    def _reclaim(self) -> None:
        spot = [found.id for found in self._cloud.living() if found.market is Market.SPOT]
        if spot:
            notice = 0.0 if self._dice.chance(0.3) else self._dice.between(0.0, 120.0)
            self._cloud.reclaim(self._dice.one(spot), notice)

    def _death(self) -> None:
        living = [found.id for found in self._cloud.living()]
        if living:
            self._cloud.kill(self._dice.one(living), "hardware")

    def _sold_out(self) -> None:
        what = (self._dice.one(ZONES), self._dice.one((Market.SPOT, Market.ON_DEMAND)))
        self._trace("weather", f"{what[0]} {what[1].value} is sold out")
        self._cloud.sold_out.add(what)
        self._crew.start(self._restock(what))

    async def _restock(self, what: tuple[str, Market]) -> None:
        await asyncio.sleep(self._dice.between(60.0, 900.0))
        self._cloud.sold_out.discard(what)

    def _price(self) -> None:
        zone, market = self._dice.one(ZONES), self._dice.one((Market.SPOT, Market.ON_DEMAND))
        self._cloud.reprice(zone, market, self._dice.whole(100_000, 1_500_000))

    def _crash(self) -> None:
        self._servers.crash_one("any moment")

    def _stop(self) -> None:
        self._servers.stop_one()

    def _clock_jump(self) -> None:
        self._clock.ahead = self._dice.between(-MOST_AHEAD, MOST_AHEAD)
        self._trace("weather", f"the clock is {self._clock.ahead:.0f} s ahead")

    def _kill_runner(self) -> None:
        runners = [runner for machine in self._machines() for runner in machine.runners.values() if runner.alive]
        if runners:
            self._trace("weather", "a runner is killed")
            self._dice.one(runners).kill()

    def _halt(self) -> None:
        self._trace("weather", "the laptop's host is killed")
        self._laptop.halt()
