"""A simulated user program: it makes steps, saves checkpoints, and continues from one."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass

from crucible.simulation.faults.ground_truth import GroundTruth, RunningProgram
from crucible.simulation.faults.world.task_group import TaskGroup

SAVE_SECONDS = 2.0
"""Time that a program takes to save and exit after SIGTERM."""


@dataclass(frozen=True)
class Script:
    """What a program does. `fails_at`: the step at which it exits with an error. `deaf`: it ignores SIGTERM."""

    steps: int
    step_seconds: float
    every: int
    fails_at: int | None = None
    deaf: bool = False

    def command(self) -> tuple[str, ...]:
        return ("steps", json.dumps(asdict(self), sort_keys=True))

    @classmethod
    def from_command(cls, command: tuple[str, ...]) -> Script:
        return cls(**json.loads(command[1]))


@dataclass(frozen=True)
class ProgramExit:
    """How a program ended. `by_itself`: not because of a signal."""

    code: int | None
    signal: int | None = None
    by_itself: bool = True


class SimulatedProgram:
    """A program that runs until it exits, is killed, or its machine dies.

    `save` is called with the step of a checkpoint, `on_exit` when the program ends, except with its machine.
    """

    def __init__(
        self,
        running: RunningProgram,
        script: Script,
        truth: GroundTruth,
        save: Callable[[int], None],
        on_exit: Callable[[ProgramExit], None],
    ) -> None:
        self._running = running
        self._script = script
        self._truth = truth
        self._save = save
        self._on_exit = on_exit
        self.tasks = TaskGroup(running.attempt)
        self._step = running.step
        self._signalled = False
        self.alive = True

    def start(self) -> None:
        self._truth.started(self._running)
        self.tasks.start(self._work())

    def signal(self, number: int) -> None:
        if not self.alive:
            return
        signalled, self._signalled = self._signalled, True
        if number == signal.SIGKILL:
            self._exit(ProgramExit(None, number, by_itself=False))
        elif not signalled and not self._script.deaf:
            self.tasks.start(self._save_and_exit())

    def checkpoint(self) -> None:
        if self.alive and self._step:
            self._save(self._step)

    def die(self) -> None:
        """End with the machine, without `on_exit`."""
        if self.alive:
            self._stop()

    async def _work(self) -> None:
        script = self._script
        while self._step < script.steps:
            await asyncio.sleep(script.step_seconds)
            self._step += 1
            if self._step == script.fails_at:
                self._truth.failed.add(self._running.job)
                return self._exit(ProgramExit(1, by_itself=not self._signalled))
            if self._step % script.every == 0:
                self._save(self._step)
        self._truth.complete(self._running)
        self._exit(ProgramExit(0, by_itself=not self._signalled))

    async def _save_and_exit(self) -> None:
        await asyncio.sleep(SAVE_SECONDS)
        self.checkpoint()
        self._exit(ProgramExit(None, signal.SIGTERM, by_itself=False))

    def _exit(self, how: ProgramExit) -> None:
        if self.alive:
            self._stop()
            self._on_exit(how)

    def _stop(self) -> None:
        self.alive = False
        self._truth.ended(self._running)
        self.tasks.die()
