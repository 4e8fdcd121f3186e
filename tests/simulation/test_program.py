from __future__ import annotations

import asyncio
import signal

from crucible.simulation.faults.ground_truth import GroundTruth, RunningProgram
from crucible.simulation.faults.virtual_loop import VirtualLoop
from crucible.simulation.faults.world.program import ProgramExit, Script, SimulatedProgram

SCRIPT = Script(steps=6, step_seconds=10.0, every=2)


class Scene:
    """A program that begins at step `start`, with a record of what it does."""

    def __init__(self, script: Script = SCRIPT, start: int = 0) -> None:
        self.broken: list[str] = []
        self.saved: list[int] = []
        self.exits: list[ProgramExit] = []
        self.truth = GroundTruth(self.broken.append)
        running = RunningProgram("job", "attempt", "machine", start)
        self.program = SimulatedProgram(running, script, self.truth, self.saved.append, self.exits.append)

    def play(self, seconds: float, number: int | None = None) -> Scene:
        """Run the program for `seconds`, then send it a signal, if any, and wait 5 seconds."""

        async def scene() -> None:
            self.program.start()
            await asyncio.sleep(seconds)
            if number is not None:
                self.program.signal(number)
                await asyncio.sleep(5)

        VirtualLoop().run_until_complete(scene())
        return self


def test_it_saves_as_it_goes_and_completes() -> None:
    scene = Scene().play(100)
    assert scene.saved == [2, 4, 6]
    assert scene.exits == [ProgramExit(0)]
    assert scene.truth.completed == {("attempt", 0)}
    assert scene.truth.live == []


def test_it_goes_on_from_its_checkpoint() -> None:
    assert Scene(start=4).play(100).saved == [6]


def test_it_saves_when_it_is_told_to_end() -> None:
    scene = Scene().play(35, signal.SIGTERM)
    assert scene.saved == [2, 3]
    assert scene.exits == [ProgramExit(None, signal.SIGTERM, by_itself=False)]
    assert scene.truth.completed == set()


def test_a_deaf_one_goes_on_until_it_is_killed() -> None:
    deaf = Script(steps=6, step_seconds=10.0, every=2, deaf=True)
    assert Scene(deaf).play(35, signal.SIGTERM).program.alive
    assert not Scene(deaf).play(35, signal.SIGKILL).program.alive


def test_one_that_fails_is_remembered() -> None:
    scene = Scene(Script(steps=6, step_seconds=10.0, every=2, fails_at=3)).play(100)
    assert scene.exits == [ProgramExit(1)]
    assert scene.truth.failed == {"job"}


def test_a_script_travels_in_a_command() -> None:
    assert Script.from_command(SCRIPT.command()) == SCRIPT


def test_two_programs_of_a_job_are_told_at_once() -> None:
    broken: list[str] = []
    truth = GroundTruth(broken.append)
    truth.started(RunningProgram("job", "first", "m1", 0))
    truth.started(RunningProgram("job", "second", "m2", 0))
    assert broken == ["two programs of job run: first and second"]
