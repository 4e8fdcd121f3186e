"""A simulated host: the real reducer `host_state`, with a shell that lives in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from crucible.agent.clock import Deadline
from crucible.agent.host import host_state as hs
from crucible.agent.host.host import WAIT_SECONDS
from crucible.agent.link.backoff import Backoff
from crucible.simulation.faults.world.attempt_folder import AttemptFolder
from crucible.simulation.faults.world.network import NoAnswer, NotWanted, RequestRefused
from crucible.simulation.faults.world.runner import Runner
from crucible.simulation.faults.world.task_group import TaskGroup
from crucible.wire.documents.desired import Assignment, Desired, decode_desired, encode_desired

if TYPE_CHECKING:
    from crucible.simulation.faults.world.machine import Machine

TURN_SECONDS = 10.0
LONG_POLL_SLACK = 15.0


class Host:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.crew = TaskGroup(f"host of {machine.native_id}")
        self._state = hs.begin(machine.idle_exit_seconds, machine.clock())
        self._version = 0
        self._lease: float | None = None
        self._deadline: Deadline | None = None
        self._quit = asyncio.Event()

    @property
    def alive(self) -> bool:
        return self.crew.alive

    def start(self) -> None:
        self.crew.start(self._live())

    def kill(self) -> None:
        """Its runners go on without it."""
        self.crew.die()

    async def _live(self) -> None:
        if not self._machine.claimed and not await self._claim():
            return self._leave("it is not wanted")
        self._machine.claimed = True
        for key, folder in self._machine.disk.items():
            runner = self._machine.runners.get(key)
            alive = runner is not None and runner.alive
            self._step(hs.RunnerAdopted(*key, alive, folder.done, self._machine.clock()))
        self.crew.start(self._ask())
        while not self._quit.is_set():
            self._notice_deaths()
            self._step(hs.Tick(self._machine.clock()))
            await asyncio.sleep(TURN_SECONDS)
        self._leave("it is done")

    def _leave(self, why: str) -> None:
        self._machine.trace(self._machine.native_id, f"its host leaves: {why}")
        self.crew.die()
        self._machine.on_host_exit()

    async def _claim(self) -> bool:
        machine = self._machine
        backoff, began = Backoff(chance=machine.chance), machine.clock()
        while True:
            try:
                await machine.call(lambda agents: agents.claim(machine.name, machine.nonce, machine.native_id), 30.0)
                return True
            except (NotWanted, RequestRefused):
                return False
            except NoAnswer:
                if machine.clock() - began > machine.idle_exit_seconds:
                    return False
            await asyncio.sleep(backoff.next())

    async def _ask(self) -> None:
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
            self._hear(desired)

    def _hear(self, desired: Desired | None) -> None:
        now = self._machine.clock()
        if desired is None:
            return self._step(hs.ContactMade(now))
        told = decode_desired(encode_desired(desired))
        self._version, self._lease = told.version, told.lease_seconds
        self._deadline = Deadline.after(told.ends_in, now)
        self._step(hs.DesiredReceived(told, now))

    def _notice_deaths(self) -> None:
        """A runner that was killed tells nobody: its host finds it dead."""
        for key, known in self._state.runners.items():
            runner = self._machine.runners.get(key)
            if known.alive and (runner is None or not runner.alive):
                self._ended(key)

    def _ended(self, key: hs.Key) -> None:
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
            machine.disk[key] = AttemptFolder(assignment, self._lease, self._deadline)
        runner = Runner(machine, machine.disk[key], lambda: machine.runner_left(key))
        machine.runners[key] = runner
        runner.start()

    def runner_left(self, key: hs.Key) -> None:
        self._ended(key)
