"""A simulated host: the real reducer `host_state` in a shell for virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from crucible.agent.clock import Deadline
from crucible.agent.host import host_state as hs
from crucible.agent.host.host import WAIT_SECONDS
from crucible.agent.link.backoff import Backoff
from crucible.simulation.faults.world.attempt_folder import SimulatedAttemptFolder
from crucible.simulation.faults.world.network import NoAnswer, NotWanted, RequestRefused
from crucible.simulation.faults.world.runner import SimulatedRunner
from crucible.simulation.faults.world.task_group import TaskGroup
from crucible.wire.documents.desired import Assignment, Desired, decode_desired, encode_desired

if TYPE_CHECKING:
    from crucible.simulation.faults.world.machine import SimulatedMachine

TURN_SECONDS = 10.0
LONG_POLL_SLACK = 15.0


class SimulatedHost:
    """The host of a machine: claims it, polls its desired state, starts runners and notices their deaths."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine
        self.tasks = TaskGroup(f"host of {machine.native_id}")
        self._state = hs.begin(machine.idle_exit_seconds, machine.clock())
        self._version = 0
        self._lease: float | None = None
        self._deadline: Deadline | None = None
        self._quit = asyncio.Event()

    @property
    def alive(self) -> bool:
        return self.tasks.alive

    def start(self) -> None:
        self.tasks.start(self._live())

    def kill(self) -> None:
        """Kill the host; its runners continue without it."""
        self.tasks.die()

    async def _live(self) -> None:
        if not self._machine.claimed and not await self._claim():
            return self._leave("it is not wanted")
        self._machine.claimed = True
        for key, folder in self._machine.disk.items():
            runner = self._machine.runners.get(key)
            alive = runner is not None and runner.alive
            self._step(hs.RunnerAdopted(*key, alive, folder.done, self._machine.clock()))
        self.tasks.start(self._poll_desired())
        while not self._quit.is_set():
            self._notice_deaths()
            self._step(hs.Tick(self._machine.clock()))
            await asyncio.sleep(TURN_SECONDS)
        self._leave("it is done")

    def _leave(self, why: str) -> None:
        self._machine.trace(self._machine.native_id, f"its host leaves: {why}")
        self.tasks.die()
        self._machine.on_host_exit()

    async def _claim(self) -> bool:
        machine = self._machine
        backoff, began = Backoff(chance=machine.chance), machine.clock()
        while True:
            try:
                await machine.call(lambda agents: agents.claim(machine.name, machine.nonce, machine.native_id), 30.0)
                return True
            except NotWanted:
                return False
            except RequestRefused:
                machine.on_refused()
                return False
            except NoAnswer:
                if machine.clock() - began > machine.idle_exit_seconds:
                    return False
            await asyncio.sleep(backoff.next())

    async def _poll_desired(self) -> None:
        machine, backoff = self._machine, Backoff(chance=self._machine.chance)
        while True:
            began, version = machine.clock(), self._version
            try:
                desired = await machine.call(
                    lambda agents, version=version: agents.desired(machine.name, version, WAIT_SECONDS),  # type: ignore[misc]
                    WAIT_SECONDS + LONG_POLL_SLACK,
                )
            except NotWanted:
                self._step(hs.MachineReleased(machine.clock()))
                await asyncio.sleep(backoff.next())
                continue
            except (NoAnswer, RequestRefused):
                self._step(hs.ContactLost(machine.clock(), began))
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self._receive(desired)

    def _receive(self, desired: Desired | None) -> None:
        now = self._machine.clock()
        if desired is None:
            return self._step(hs.ContactMade(now))
        # Through the wire format, as between a real server and a real host.
        received = decode_desired(encode_desired(desired))
        self._version, self._lease = received.version, received.lease_seconds
        self._deadline = Deadline.after(received.ends_in, now)
        self._step(hs.DesiredReceived(received, now))

    def _notice_deaths(self) -> None:
        """Report runners that were killed, which cannot report it themselves."""
        for key, known in self._state.runners.items():
            runner = self._machine.runners.get(key)
            if known.alive and (runner is None or not runner.alive):
                self.runner_left(key)

    def runner_left(self, key: hs.Key) -> None:
        """Report that a runner left or died."""
        if self.alive:
            folder = self._machine.disk.get(key)
            self._step(hs.RunnerEnded(*key, folder is not None and folder.done, self._machine.clock()))

    def _step(self, event: hs.Event) -> None:
        self._state, actions = hs.step(self._state, event)
        for action in actions:
            self._act(action)

    def _act(self, action: hs.Action) -> None:
        match action:
            case hs.ExitHost():
                self._quit.set()
            case hs.RemoveAttempt(attempt, rank):
                self._machine.disk.pop((attempt, rank), None)
            case hs.StartRunner(assignment):
                self._launch((assignment.attempt, assignment.rank), assignment)
            case hs.RecoverRunner(attempt, rank):
                self._launch((attempt, rank), (self._state.assignments or {}).get((attempt, rank)))

    def _launch(self, key: hs.Key, assignment: Assignment | None) -> None:
        machine = self._machine
        if key not in machine.disk:
            if assignment is None:
                return
            machine.disk[key] = SimulatedAttemptFolder(assignment, self._lease, self._deadline)
        runner = SimulatedRunner(machine, machine.disk[key], lambda: machine.runner_left(key))
        machine.runners[key] = runner
        runner.start()
