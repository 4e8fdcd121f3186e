"""A simulated cluster: machines wait in its own queue, start, run for a limited time and end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from crucible.simulation.faults.fault_rates import FaultRates, RandomStream
from crucible.simulation.faults.world.machine import MachineEnvironment, SimulatedMachine
from crucible.wire.documents.bootstrap import Bootstrap

IDLE_EXIT_SECONDS = 60.0
WAITS = (15.0, 15.0, 200.0, 2400.0)
"""Means of the time in the queue; the longest is beyond the life of a nonce."""
APART_SHARE = 0.4
"""Share of the gangs whose machines start one by one."""
REASONS = ("resources", "priority")


@dataclass
class Submission:
    """A machine in the cluster's books: it waits until it has started or ended. Times are virtual seconds."""

    id: str
    token: str
    deployment: str
    reason: str
    ends_after: float
    submitted_at: float
    computer: SimulatedMachine
    ending: bool = False
    started_at: float | None = None
    ended_at: float | None = None
    cause: str = ""

    @property
    def machine(self) -> str:
        return self.computer.name

    @property
    def alive(self) -> bool:
        return self.ended_at is None

    @property
    def waits(self) -> bool:
        return self.alive and self.started_at is None


class Cluster:
    """A submission with a known token makes only those of its machines that earlier ones did not.

    `on_submit` is called with each machine before it is in the queue, `on_terminate` with each live one that is asked
    to end, `on_refused` if a host that has started may not claim its machine.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, environment: MachineEnvironment, faults: FaultRates, rng: RandomStream
    ) -> None:
        self._loop = loop
        self._environment = environment
        self._faults = faults
        self._rng = rng
        self.submissions: dict[str, Submission] = {}
        self.on_submit: Callable[[str], None] = lambda machine: None
        self.on_terminate: Callable[[SimulatedMachine], None] = lambda machine: None
        self.on_refused: Callable[[Submission], None] = lambda submission: None

    def submit(
        self, token: str, deployment: str, bootstraps: Sequence[Bootstrap], ends_after: float
    ) -> list[Submission]:
        """Put the machines of one call into the queue. They start together, or sometimes one by one."""
        known = {found.machine: found for found in self.find(token)}
        new = [bootstrap for bootstrap in bootstraps if bootstrap.machine not in known]
        if new:
            number, reason = len(self.submissions) + 1, self._rng.choose(REASONS)
            made = [self._add(f"c-{number}.{n}", token, deployment, b, reason, ends_after) for n, b in enumerate(new)]
            known.update({one.machine: one for one in made})
            apart = len(made) > 1 and self._rng.chance(APART_SHARE)
            for together in [[one] for one in made] if apart else [made]:
                self._loop.call_later(self._rng.waiting_time(self._rng.choose(WAITS)), self._start, together)
        return [known[bootstrap.machine] for bootstrap in bootstraps]

    def _add(
        self, name: str, token: str, deployment: str, bootstrap: Bootstrap, reason: str, ends_after: float
    ) -> Submission:
        self.on_submit(bootstrap.machine)
        computer = SimulatedMachine(
            bootstrap.machine,
            name,
            bootstrap.nonce,
            self._environment,
            lambda: self.end(name, "shut down"),
            IDLE_EXIT_SECONDS,
        )
        made = Submission(name, token, deployment, reason, ends_after, self._loop.time(), computer)
        computer.on_refused = lambda: self.on_refused(made)
        self.submissions[name] = made
        self._environment.trace(name, f"is queued as {bootstrap.machine}")
        return made

    def find(self, token: str) -> list[Submission]:
        return [found for found in self.submissions.values() if found.token == token]

    def withdraw(self, name: str) -> bool:
        """Cancel a machine in the queue. Return False if it has started."""
        found = self.submissions.get(name)
        if found is not None and found.alive:
            if not found.waits:
                return False
            self._environment.trace(name, "is withdrawn")
            self.kill(name, "withdrawn")
        return True

    def end_on_request(self, name: str) -> Submission | None:
        """End a machine because its owner asked for it. Return None if it is unknown."""
        found = self.submissions.get(name)
        if found is not None and found.alive and not found.ending:
            self.on_terminate(found.computer)
        return self.end(name, "on request")

    def end(self, name: str, cause: str) -> Submission | None:
        """Begin to end a machine: one that runs takes some seconds."""
        found = self.submissions.get(name)
        if found is not None and found.alive and not found.ending:
            found.ending = True
            self._loop.call_later(0.0 if found.waits else self._rng.uniform(0.5, 8.0), self.kill, name, cause)
        return found

    def kill(self, name: str, cause: str) -> None:
        """End a machine at once."""
        found = self.submissions[name]
        if found.alive:
            found.ended_at, found.cause = self._loop.time(), cause
            found.computer.die()
            self._environment.trace(name, f"is gone: {cause}")

    def now(self) -> float:
        """Return the virtual time."""
        return self._loop.time()

    def living(self) -> Iterator[Submission]:
        return (found for found in self.submissions.values() if found.alive)

    def _start(self, made: list[Submission]) -> None:
        for one in made:
            if not one.alive or one.ending:
                continue
            one.started_at = self._loop.time()
            self._environment.trace(one.id, "starts")
            self._loop.call_later(one.ends_after, self.end, one.id, "time limit")
            if not self._faults.strikes("boot.failed"):
                self._loop.call_later(self._rng.uniform(1.0, 20.0), self._boot, one)

    def _boot(self, one: Submission) -> None:
        if one.alive:
            one.computer.start_host()
