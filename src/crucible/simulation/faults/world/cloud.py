"""A simulated cloud: instances that boot, bill and end, and the cloud's own meter."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from crucible.core.compute.offers import Market
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.world.machine import MachineEnvironment, SimulatedMachine
from crucible.simulation.faults.world.ports import START

ZONES = ("north-1", "north-2", "south-1")
Kind = tuple[str, Market]
MINIMUM = 60
"""Minimum of billed seconds."""
LISTED_SECONDS = 3600.0
"""How long an ended instance is still listed."""
IDLE_EXIT_SECONDS = 60.0


@dataclass
class BilledPeriod:
    """A period at one price, in whole seconds since the epoch. `until`: None while it runs."""

    since: int
    until: int | None
    rate: int


@dataclass
class Instance:
    """An instance. `machine`: the id in its row; `ending`: termination has begun. Times are virtual seconds."""

    id: str
    machine: str
    deployment: str
    zone: str
    market: Market
    created_at: float
    computer: SimulatedMachine
    bill: list[BilledPeriod] = field(default_factory=list)
    ending: bool = False
    ended_at: float | None = None
    cause: str = ""

    @property
    def alive(self) -> bool:
        return self.ended_at is None


class Cloud:
    """`honours_tokens`: a second create with the same token returns the first instance.

    `on_create` is called with the token and the maximum end of every instance before it exists, `on_terminate` with
    every live instance that is asked to terminate.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, environment: MachineEnvironment, faults: FaultRates, rng: RandomStream
    ) -> None:
        self._loop = loop
        self._environment = environment
        self._faults = faults
        self._rng = rng
        self.honours_tokens = not rng.chance(0.35)
        self.instances: dict[str, Instance] = {}
        self.sold_out: set[Kind] = set()
        self._restocked_at: dict[Kind, float] = {}
        self.on_create: Callable[[str, float | None], None] = lambda machine, ends_at: None
        self.on_terminate: Callable[[Instance], None] = lambda found: None
        self.prices = {
            (zone, market): 900_000 + 1000 * n if market is Market.ON_DEMAND else 300_000 + 1000 * n
            for n, zone in enumerate(ZONES)
            for market in (Market.ON_DEMAND, Market.SPOT)
        }

    def create(
        self, token: str, deployment: str, zone: str, market: Market, nonce: str, ends_at: float | None
    ) -> Instance:
        known = self.find_by_token(token)
        if known is not None:
            return known
        self.on_create(token, ends_at)
        name = f"i-{len(self.instances) + 1}"
        computer = SimulatedMachine(
            token, name, nonce, self._environment, lambda: self.end(name, "shut down"), IDLE_EXIT_SECONDS
        )
        made = Instance(name, token, deployment, zone, market, self._loop.time(), computer)
        made.bill.append(BilledPeriod(self._second(), None, self.prices[zone, market]))
        self.instances[name] = made
        self._environment.trace(name, f"is made as {token} in {zone} ({market.value})")
        if not self._faults.strikes("boot.failed"):
            self._loop.call_later(self._rng.uniform(5.0, 40.0), self._boot, made)
        if ends_at is not None:
            self._loop.call_later(ends_at - START - self._loop.time(), self.end, name, "maximum duration")
        return made

    def find_by_token(self, token: str) -> Instance | None:
        """Return the instance that was created with this token, or None. Always None if tokens are ignored."""
        if not self.honours_tokens:
            return None
        return next((found for found in self.instances.values() if found.machine == token), None)

    def end_on_request(self, name: str) -> Instance | None:
        """Terminate an instance because its owner asked for it. Return None if it is unknown."""
        found = self.instances.get(name)
        if found is not None and found.alive and not found.ending:
            self.on_terminate(found)
        return self.end(name, "on request")

    def end(self, name: str, cause: str, seconds: float | None = None) -> Instance | None:
        """Begin to terminate an instance, which takes some seconds. Return None if it is unknown."""
        found = self.instances.get(name)
        if found is not None and found.alive and not found.ending:
            found.ending = True
            delay = self._rng.uniform(0.5, 8.0) if seconds is None else seconds
            self._loop.call_later(delay, self.kill, name, cause)
        return found

    def kill(self, name: str, cause: str) -> None:
        """End an instance at once."""
        found = self.instances[name]
        if not found.alive:
            return
        found.ended_at, found.cause = self._loop.time(), cause
        found.bill[-1].until = self._second(up=True)
        found.computer.die()
        self._environment.trace(name, f"is gone: {cause}")

    def reclaim(self, name: str, notice: float) -> None:
        """Reclaim a spot instance after `notice` seconds, and announce that to it unless they are 0."""
        found = self.instances[name]
        if found.alive:
            self._environment.trace(name, f"will be taken back in {notice:.0f} s")
            if notice > 0:
                found.computer.notice(notice)
            self._loop.call_later(notice, self.kill, name, "reclaimed")

    def reprice(self, zone: str, market: Market, rate: int) -> None:
        self.prices[zone, market] = rate
        if market is not Market.SPOT:
            return
        now = self._second(up=True)
        for found in self.living():
            last = found.bill[-1]
            if (found.zone, found.market) == (zone, market) and now > last.since:
                last.until = now
                found.bill.append(BilledPeriod(now, None, rate))

    def sell_out(self, kind: Kind) -> None:
        self.sold_out.add(kind)

    def restock(self, *kinds: Kind) -> None:
        """Make capacity available again. Servers learn of it only with their next list of offers."""
        self.sold_out -= set(kinds)
        self._restocked_at.update(dict.fromkeys(kinds, self._loop.time()))

    def forget_stock(self) -> None:
        """Treat all capacity as new, because a server on a laptop that slept has only old offers."""
        self._restocked_at.update(dict.fromkeys(self.prices, self._loop.time()))

    def zones_in_stock(self, market: Market, seconds: float) -> set[str]:
        """Return the zones that have had capacity for `seconds`, so that every server knows of it."""
        then = self._loop.time() - seconds
        kinds = [(zone, market) for zone in ZONES]
        return {
            kind[0] for kind in kinds if kind not in self.sold_out and self._restocked_at.get(kind, -math.inf) < then
        }

    def living(self) -> Iterator[Instance]:
        return (found for found in self.instances.values() if found.alive)

    def list_instances(self, lag: float) -> list[Instance]:
        """Return the instances that a list shows that is `lag` seconds behind."""
        oldest = self._loop.time() - lag - LISTED_SECONDS
        return [found for found in self.metered(lag) if found.ended_at is None or found.ended_at > oldest]

    def metered(self, lag: float) -> list[Instance]:
        """Return all instances in the cloud's bill, which is `lag` seconds behind and never drops one."""
        then = self._loop.time() - lag
        return [found for found in self.instances.values() if found.created_at <= then]

    def seen_alive(self, found: Instance, lag: float) -> bool:
        """Return whether a view that is `lag` seconds behind shows the instance as live."""
        return found.ended_at is None or found.ended_at > self._loop.time() - lag

    def billed(self, machine: str) -> int:
        """Return the cost of all instances of a machine by the cloud's own meter, in micro-dollars."""
        return sum(_price(found.bill) for found in self.instances.values() if found.machine == machine)

    def _boot(self, made: Instance) -> None:
        if made.alive:
            made.computer.start_host()

    def _second(self, *, up: bool = False) -> int:
        now = START + self._loop.time()
        return math.ceil(now) if up else math.floor(now)


def _price(bill: list[BilledPeriod]) -> int:
    """Return the price in micro-dollars: by the second, at least the minimum, rounded up once."""
    seconds = [(part.until or part.since) - part.since for part in bill]
    total = sum(length * part.rate for length, part in zip(seconds, bill, strict=True))
    total += max(MINIMUM - sum(seconds), 0) * bill[-1].rate
    return -(-total // 3600)
