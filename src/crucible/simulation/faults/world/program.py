"""A user's program: it makes steps, saves checkpoints, and goes on from one."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass

from crucible.simulation.faults.ground_truth import GroundTruth, RunningProgram
from crucible.simulation.faults.world.task_group import TaskGroup

LAST_WORDS = 2.0
"""Seconds that a program takes to save when it is told to end."""


@dataclass(frozen=True)
class Script:
    """What a program does. `fails_at`: the step at which it gives up. `deaf`: it does not hear TERM."""

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
    code: int | None
    signal: int | None = None
    by_itself: bool = True


class Program:
    """Runs until it exits, is killed, or its machine dies. `save` is called with the step of a checkpoint."""

    def __init__(
        self,
        running: RunningProgram,
        script: Script,
        truth: GroundTruth,
        save: Callable[[int], None],
        ended: Callable[[ProgramExit], None],
    ) -> None:
        self._running = running
        self._script = script
        self._truth = truth
        self._save = save
        self._ended = ended
        self.crew = TaskGroup(running.attempt)
        self._step = running.step
        self._told = False
        self.alive = True

    def start(self) -> None:
        self._truth.started(self._running)
        self.crew.start(self._work())

    def signal(self, number: int) -> None:
        if not self.alive:
            return
        told, self._told = self._told, True
        if number == signal.SIGKILL:
            self._exit(ProgramExit(None, number, by_itself=False))
        elif not told and not self._script.deaf:
            self.crew.start(self._give_up())

    def checkpoint(self) -> None:
        if self.alive and self._step:
            self._save(self._step)

    def die(self) -> None:
        """Its machine is gone: nobody is told."""
        if self.alive:
            self._stop()

    async def _work(self) -> None:
        script = self._script
        while self._step < script.steps:
            await asyncio.sleep(script.step_seconds)
            self._step += 1
            if self._step == script.fails_at:
                self._truth.failed.add(self._running.job)
                return self._exit(ProgramExit(1, by_itself=not self._told))
            if self._step % script.every == 0:
                self._save(self._step)
        self._truth.complete(self._running)
        self._exit(ProgramExit(0, by_itself=not self._told))

    async def _give_up(self) -> None:
        await asyncio.sleep(LAST_WORDS)
        self.checkpoint()
        self._exit(ProgramExit(None, signal.SIGTERM, by_itself=False))

    def _exit(self, how: ProgramExit) -> None:
        if self.alive:
            self._stop()
            self._ended(how)

    def _stop(self) -> None:
        self.alive = False
        self._truth.ended(self._running)
        self.crew.die()
