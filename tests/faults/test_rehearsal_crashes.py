"""The server is killed between a call to the cloud and its record; no machine is forgotten, none runs a job twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.rehearsed import LONG, SMALL, Rehearsed, rehearsed
from tests.faults.test_crashpoints import Mortal
from tests.harness import View, shell, until

LAUNCH = ("launch.before_call", "launch.after_call", "launch.recorded")
TERMINATE = ("terminate.before_call", "terminate.after_call")
CASES = [(point, honoured) for point in LAUNCH for honoured in (True, False)] + [(point, True) for point in TERMINATE]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Rehearsed]:
    with rehearsed(tmp_path) as world:
        world.cloud.faults(list_lag=2, shutdown_seconds=0.3)
        yield world


@pytest.mark.parametrize(("point", "honoured"), CASES)
def test_nothing_leaks(world: Rehearsed, tmp_path: Path, point: str, honoured: bool) -> None:
    world.cloud.faults(tokens_honoured=honoured)
    mortal = Mortal(world.crucible, point)
    job = mortal.submit(once(tmp_path))
    view = mortal.end_of(job)
    assert (view["status"], view["attempt"]) == ("completed", 1), view["reason"]
    mortal.persist(lambda: not world.alive(), "every machine to end")
    mortal.persist(lambda: all(m["state"] == "gone" for m in world.machines()), "our books to say so")
    assert mortal.deaths == 1, f"{point} was not reached"
    assert not (tmp_path / "double").exists()
    assert {i["tags"]["crucible-machine"] for i in world.cloud.census().values()} == {view["machine"]}
    world.nothing_lives()
    world.bills_agree()


def once(folder: Path) -> View:
    """A second runner would be seen: a folder can be made once."""
    command = f"mkdir '{folder}/ran' || touch '{folder}/double'"
    return shell(command, backend="rehearsal", resources=SMALL)


@pytest.mark.parametrize("honoured", [True, False], ids=["tokens honoured", "tokens ignored"])
def test_a_launch_that_nobody_wants_any_more_is_found_and_ended(world: Rehearsed, honoured: bool) -> None:
    """Its answer was lost, and the job is cancelled before anybody knows of the machine."""
    world.cloud.faults(tokens_honoured=honoured, lost_answers=1, boot_seconds=5)
    world.crucible.start()
    job = world.submit(shell("sleep 600"))
    until(lambda: world.alive(), LONG, "a machine that we do not know of")
    world.crucible.cancel(job)
    assert world.crucible.wait(job, LONG)["status"] == "cancelled"
    world.cloud.faults(lost_answers=0)
    until(lambda: not world.alive(), LONG, "it to be found and ended")
    assert {i["cause"] for i in world.cloud.census().values()} <= {"user_initiated", "instance_shutdown"}
