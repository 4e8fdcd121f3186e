"""Storms: large faults that happen one after another until the calm phase."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from crucible.core.compute.offers import Market
from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.trace import Trace
from crucible.simulation.faults.virtual_loop import virtual_loop
from crucible.simulation.faults.world.cloud import ZONES, Cloud
from crucible.simulation.faults.world.computer import Computer
from crucible.simulation.faults.world.layout import Layout
from crucible.simulation.faults.world.machine import SimulatedMachine
from crucible.simulation.faults.world.network import NetworkLink
from crucible.simulation.faults.world.people import SimulatedUsers
from crucible.simulation.faults.world.ports import WallClock
from crucible.simulation.faults.world.servers import Servers
from crucible.simulation.faults.world.task_group import TaskGroup
from crucible.simulation.faults.world.webhook_receiver import STORM as RECEIVER

BETWEEN_SECONDS = 60.0
MAX_CLOCK_ERROR = 120.0
"""Seconds by which the control plane's clock may be wrong without a step."""
STEP_FORWARD = (600.0, 3 * 3600.0)
STEP_BACK = (60.0, 300.0)
"""Ranges of a clock step, in seconds. Steps back are short: every deadline moves away by the same time."""
PAUSES = (30.0, 150.0, 300.0, 400.0)
"""Seconds for which a server freezes: some are longer than its duties last, its claims, or both with the calls."""
SLEEPS = (60.0, 600.0, 3600.0, 7200.0)
OUTAGE_SHARE = 0.25
"""Share of the seeds with an outage: a provider that is out of reach while users submit, for longer than any storm."""
OUTAGE_BEGINS, OUTAGE_SECONDS = (100.0, 1200.0), (300.0, 900.0)
MAX_AFTERSHOCK = 180.0
"""Seconds for which the disk or the store may stay full in the calm phase."""


class Storms:
    """Starts a random storm every BETWEEN_SECONDS on average, and undoes them all at the end."""

    def __init__(
        self,
        faults: FaultRates,
        cloud: Cloud,
        layout: Layout,
        servers: Servers,
        people: SimulatedUsers,
        clock: WallClock,
        trace: Trace,
        rng: RandomStream,
    ) -> None:
        self._faults, self._cloud, self._layout, self._laptop = faults, cloud, layout, layout.laptop
        self._servers, self._people, self._clock, self._trace, self._rng = servers, people, clock, trace, rng
        self._tasks = TaskGroup("storms")
        self._cut: list[NetworkLink] = []
        self._steps = 0.0
        self._asleep_since: float | None = None
        self._frozen: list[TaskGroup] = []
        self._over = False
        self.slept = 0.0

    def start(self) -> None:
        self._tasks.start(self._run())

    def plan_outage(self, rng: RandomStream) -> None:
        self._tasks.start(self._outage(rng))

    async def _outage(self, rng: RandomStream) -> None:
        await asyncio.sleep(rng.uniform(*OUTAGE_BEGINS))
        self._storm(self._choose_provider(rng), rng.uniform(*OUTAGE_SECONDS))

    def end(self) -> None:
        """Begin the calm phase: restore the network, wake the laptop, restock. The disk may stay full for a while."""
        if self._over:
            return
        self._over = True
        self._tasks.die()
        self._wake()
        self._cloud.restock(*self._cloud.sold_out)
        for link in self._cut:
            link.cut = False
        for host in self._layout.hosts:
            host.reconnect()
        self._leave_cut()
        if self._rng.chance(0.3):
            self._storm(self._rng.choose(("disk", "store")), self._rng.uniform(10.0, MAX_AFTERSHOCK))

    def _leave_cut(self) -> None:
        """Sometimes leave one machine cut off in the calm phase, until its lease expires and it is given up."""
        living = [found.computer.link for found in self._cloud.living()]
        links = [link for link in living if any(link is cut for cut in self._cut)]
        if links and self._rng.chance(0.5):
            link = self._rng.choose(links)
            link.cut = True
            self._trace("weather", "a line stays cut for a while")
            virtual_loop().call_later(self._rng.uniform(600.0, 3000.0), setattr, link, "cut", False)

    async def _run(self) -> None:
        kinds: tuple[Callable[[], None], ...] = (
            self._provider,
            self._slow,
            self._partition,
            self._partition,
            self._partition,
            self._reclaim,
            self._reclaim,
            self._reclaim,
            self._death,
            self._sold_out,
            self._price,
            self._price,
            self._full,
            self._store_away,
            self._receiver,
            self._crash,
            self._crash,
            self._stop,
            self._stand_still,
            self._stand_still,
            self._stand_still,
            self._clock_jump,
            self._clock_step,
            self._sleep,
            self._kill_runner,
            self._halt,
            *((self._host_away, self._host_away, self._host_restart) if self._layout.hosts else ()),
            *((self._cluster_death,) if self._layout.cluster else ()),
        )
        while True:
            await asyncio.sleep(self._rng.waiting_time(BETWEEN_SECONDS))
            self._rng.choose(kinds)()

    def _provider(self) -> None:
        self._storm(self._choose_provider(self._rng), self._rng.uniform(20.0, 300.0))

    def _choose_provider(self, rng: RandomStream) -> str:
        return "cloud" if self._layout.cluster is None else rng.choose(("cloud", "cluster"))

    def _slow(self) -> None:
        self._storm(f"slow {self._rng.choose(('cloud', 'cloud', 'local'))}", self._rng.uniform(20.0, 300.0))

    def _full(self) -> None:
        self._storm(self._rng.choose(("disk", "store")), self._rng.uniform(10.0, 120.0))

    def _store_away(self) -> None:
        self._storm("store away", self._rng.uniform(20.0, 600.0))

    def _receiver(self) -> None:
        self._storm(RECEIVER, self._rng.uniform(20.0, 300.0))

    def _storm(self, name: str, seconds: float) -> None:
        self._trace("weather", f"{name} for {seconds:.0f} s")
        self._faults.storm(name, seconds)

    def _partition(self) -> None:
        machines = self._machines()
        if not machines:
            return
        struck = machines if self._rng.chance(0.2) else [self._rng.choose(machines)]
        seconds = self._rng.choose((5.0, 60.0, 600.0, 1500.0, 1500.0)) * self._rng.uniform(0.5, 1.5)
        for machine in struck:
            self._trace("weather", f"{machine.native_id} is cut off for {seconds:.0f} s")
            machine.link.cut = True
            self._cut.append(machine.link)
            self._tasks.start(self._reconnect(machine.link, seconds))

    async def _reconnect(self, link: NetworkLink, seconds: float) -> None:
        await asyncio.sleep(seconds)
        link.cut = False

    def _machines(self) -> list[SimulatedMachine]:
        here = [machine for computer in self._layout.computers for machine in computer.machines]
        cluster = () if self._layout.cluster is None else self._layout.cluster.living()
        started = [found.computer for found in cluster if not found.waits]
        return [found.computer for found in self._cloud.living()] + here + started

    def _reclaim(self) -> None:
        spot = [found.id for found in self._cloud.living() if found.market is Market.SPOT]
        if spot:
            notice = 0.0 if self._rng.chance(0.3) else self._rng.uniform(0.0, 120.0)
            self._cloud.reclaim(self._rng.choose(spot), notice)

    def _death(self) -> None:
        living = [found.id for found in self._cloud.living()]
        if living:
            self._cloud.kill(self._rng.choose(living), "hardware")

    def _sold_out(self) -> None:
        what = (self._rng.choose(ZONES), self._rng.choose((Market.SPOT, Market.ON_DEMAND)))
        self._trace("weather", f"{what[0]} {what[1].value} is sold out")
        self._cloud.sell_out(what)
        self._tasks.start(self._restock(what))

    async def _restock(self, what: tuple[str, Market]) -> None:
        await asyncio.sleep(self._rng.uniform(60.0, 900.0))
        self._cloud.restock(what)

    def _price(self) -> None:
        """Change a price: more often than not one that a running spot instance pays."""
        rented = [found.zone for found in self._cloud.living() if found.market is Market.SPOT]
        if rented and self._rng.chance(0.7):
            zone, market = self._rng.choose(rented), Market.SPOT
        else:
            zone, market = self._rng.choose(ZONES), self._rng.choose((Market.SPOT, Market.ON_DEMAND))
        self._cloud.reprice(zone, market, self._rng.integer(100_000, 1_500_000))

    def _crash(self) -> None:
        self._servers.crash_one("any moment")

    def _stop(self) -> None:
        self._servers.stop_one()

    def _stand_still(self) -> None:
        self._servers.halt_one(self._rng.choose(PAUSES) * self._rng.uniform(0.7, 1.3))

    def _clock_jump(self) -> None:
        self._clock.ahead = self._steps + self._rng.uniform(-MAX_CLOCK_ERROR, MAX_CLOCK_ERROR)
        self._trace("weather", f"the clock is {self._clock.ahead:.0f} s ahead")

    def _clock_step(self) -> None:
        """Set the clock: up to hours forward, as after a power outage, or some minutes back."""
        if not self._rng.chance(0.4):
            return
        seconds = self._rng.uniform(*STEP_FORWARD) if self._rng.chance(0.6) else -self._rng.uniform(*STEP_BACK)
        self._steps += seconds
        self._clock.step(seconds)
        self._trace("weather", f"the clock is set {seconds:+.0f} s")

    def _sleep(self) -> None:
        """Put the laptop to sleep: everything on it freezes, including an embedded server and its user."""
        if self._asleep_since is not None or not self._rng.chance(0.5):
            return
        seconds = self._rng.choose(SLEEPS) * self._rng.uniform(0.5, 1.5)
        self._trace("weather", f"the laptop sleeps for {seconds:.0f} s")
        self._asleep_since = virtual_loop().time()
        self._laptop.away = True
        home = self._servers.on_laptop()
        self._frozen = [*self._laptop.task_groups(), *home, *([self._people.tasks] if home else [])]
        virtual_loop().freeze(self._frozen)
        if home:
            self.slept += seconds
        self._tasks.start(self._sleep_on(seconds))

    async def _sleep_on(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._wake()

    def _wake(self) -> None:
        if self._asleep_since is None:
            return
        slept, self._asleep_since = virtual_loop().time() - self._asleep_since, None
        self._trace("weather", "the laptop wakes")
        self._laptop.wake(slept, clock_stood=self._rng.chance(0.5))
        self._cloud.forget_stock()
        virtual_loop().thaw(self._frozen)

    def _kill_runner(self) -> None:
        runners = [runner for machine in self._machines() for runner in machine.runners.values() if runner.alive]
        if runners:
            self._trace("weather", "a runner is killed")
            self._rng.choose(runners).kill()

    def _halt(self) -> None:
        self._trace("weather", "the laptop's host is killed")
        self._laptop.halt()

    def _host_away(self) -> None:
        """Cut off a host that stands alone, for seconds or for longer than any lease. What runs there continues."""
        host = self._choose_host()
        if host.away:
            return
        seconds = self._rng.choose((30.0, 200.0, 1200.0)) * self._rng.uniform(0.5, 1.5)
        self._trace("weather", f"{host.node.id} is away for {seconds:.0f} s")
        host.disconnect()
        self._tasks.start(self._come_back(host, seconds))

    def _choose_host(self) -> Computer:
        """Return a host: more often than not one on which a program runs."""
        busy = [host for host in self._layout.hosts if any(machine.is_busy for machine in host.machines)]
        return self._rng.choose(busy if busy and self._rng.chance(0.8) else self._layout.hosts)

    async def _come_back(self, host: Computer, seconds: float) -> None:
        await asyncio.sleep(seconds)
        host.reconnect()
        self._trace("weather", f"{host.node.id} is back")

    def _host_restart(self) -> None:
        host = self._choose_host()
        self._trace("weather", f"{host.node.id} restarts")
        host.restart()

    def _cluster_death(self) -> None:
        assert self._layout.cluster is not None, "only worlds with a cluster have this storm"
        started = [found.id for found in self._layout.cluster.living() if not found.waits]
        if started:
            self._layout.cluster.kill(self._rng.choose(started), "hardware")
