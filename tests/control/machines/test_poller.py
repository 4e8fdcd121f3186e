from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.control.fakes import Gate
from tests.control.world import Rig, other_worker, with_calls

from crucible.backends.base import Seen
from crucible.control.db import schema as t
from crucible.core.errors import TimedOut, Unreachable
from crucible.core.lifecycle import JobState, MachineState, Reason
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.silence import SETTLE_WINDOW


async def launches(rig: Rig) -> list[bool]:
    return [e["done"] for e in await rig.rows(t.effects) if e["kind"] == "launch"]


async def test_one_sighting_is_not_enough(rig: Rig) -> None:
    await rig.running()
    machine = await rig.machine()
    rig.backend.show(machine.id, Seen.GONE)
    await rig.poller.poll()
    assert (await rig.machine()).state is MachineState.UP
    await rig.poller.poll()
    assert (await rig.machine()).state is MachineState.GONE


async def test_a_machine_seen_again_in_between_starts_the_count_anew(rig: Rig) -> None:
    await rig.running()
    machine = await rig.machine()
    for seen in (Seen.GONE, Seen.UP, Seen.GONE, Seen.STARTING, Seen.GONE):
        rig.backend.show(machine.id, seen)
        await rig.poller.poll()
    found = await rig.machine()
    assert (found.state, found.gone_sightings) == (MachineState.UP, 1)


async def seen_gone_once(rig: Rig) -> None:
    """By a list that may be 100 seconds old."""
    rig.backend.capabilities = replace(rig.backend.capabilities, settle_window=100.0)
    await rig.running()
    rig.backend.show((await rig.machine()).id, Seen.GONE)
    await rig.poller.poll()


async def test_two_lists_are_as_far_apart_as_time_has_passed_whatever_the_clock_was_set_to(rig: Rig) -> None:
    await seen_gone_once(rig)
    rig.clock.set(3600.0)
    await rig.poller.poll()
    assert (await rig.machine()).alive
    rig.clock.set(-7200.0)
    rig.clock.move(100.0)
    await rig.poller.poll()
    assert not (await rig.machine()).alive


async def test_what_a_process_before_it_saw_is_no_first_list(rig: Rig) -> None:
    """Its clock may have been another."""
    await seen_gone_once(rig)
    rig.clock.move(3600.0)
    successor = await other_worker(rig, "w2")
    await successor.poller.poll()
    assert (await rig.machine()).alive
    rig.clock.move(100.0)
    await successor.poller.poll()
    assert not (await rig.machine()).alive


async def test_what_somebody_else_saw_again_in_between_starts_the_time_anew(rig: Rig) -> None:
    await seen_gone_once(rig)
    machine = (await rig.machine()).id
    await rig.change_machine(machine, f.SeenUp())
    rig.clock.move(100.0)
    for _ in range(2):
        await rig.poller.poll()
    assert (await rig.machine()).alive


async def test_a_list_that_lags_behind_a_launch_is_not_believed(rig: Rig) -> None:
    rig.backend.lag = 1
    await rig.submit()
    await rig.performer.perform_due()
    await rig.poller.poll()
    await rig.poller.poll()
    found = await rig.machine()
    assert (found.state, found.gone_sightings) == (MachineState.CREATING, 0)


async def test_halted_is_launched_again_with_the_same_call(rig: Rig) -> None:
    job, _ = await rig.running()
    machine = await rig.machine()
    rig.backend.show(machine.id, Seen.HALTED)
    await rig.poller.poll()
    await rig.poller.poll()
    assert (await rig.machine()).state is MachineState.CREATING
    assert await launches(rig) == [True, False], "one launch is wanted, however often it is seen"
    await rig.performer.perform_due()
    assert rig.backend.launches[0] == rig.backend.launches[1]
    await rig.agents.desired(machine.id, 0, 0)
    assert (await rig.machine()).state is MachineState.UP
    assert (await rig.world(job)).job.state is JobState.RUNNING, "the job never noticed"


@pytest.mark.parametrize(("seen", "reason"), [(Seen.INTERRUPTED, Reason.INTERRUPTED), (Seen.GONE, Reason.MACHINE_LOST)])
async def test_the_cause_of_an_end_decides_the_retry(rig: Rig, seen: Seen, reason: Reason) -> None:
    job, _ = await rig.running()
    rig.backend.show((await rig.machine()).id, seen)
    for _ in range(2):
        await rig.poller.poll()
    await rig.reconciler.round()
    assert (await rig.world(job)).live is not None, "its last messages may still arrive"
    rig.clock.move(SETTLE_WINDOW)
    await rig.reconciler.round()
    world = await rig.world(job)
    assert (world.attempts[0].reason, world.attempts[0].detail) == (reason, f"it is {seen.value}")


async def test_messages_within_the_settle_window_decide(rig: Rig) -> None:
    job, runner = await rig.running()
    rig.backend.show((await rig.machine()).id, Seen.GONE)
    for _ in range(2):
        await rig.poller.poll()
    await runner.end(code=0)
    rig.clock.move(SETTLE_WINDOW)
    await rig.reconciler.round()
    assert (await rig.world(job)).job.state is JobState.COMPLETED


@pytest.mark.parametrize("seen", [Seen.UNREACHABLE, Seen.UP, Seen.STARTING])
async def test_what_is_no_news_writes_nothing(rig: Rig, seen: Seen) -> None:
    await rig.running()
    before = await rig.machine()
    rig.backend.show(before.id, seen)
    for _ in range(3):
        await rig.poller.poll()
    assert await rig.machine() == before


@pytest.mark.parametrize("error", [Unreachable("No answer."), TimedOut("Too late.")])
async def test_one_places_trouble_stops_no_other(two_backends: Rig, error: Exception) -> None:
    rig = two_backends
    await rig.submit()
    await rig.submit(backend="ssh")
    await rig.performer.perform_due()
    rig.backend.down = error
    for made in rig.backends["ssh"].made.values():
        made.seen = Seen.GONE
    for _ in range(2):
        await rig.poller.poll()
    states = {m["backend"]: m["state"] for m in await rig.rows(t.machines)}
    assert states == {"local": "creating", "ssh": "gone"}


async def test_a_place_that_hangs_delays_no_other(two_backends: Rig) -> None:
    await two_backends.submit()
    await two_backends.submit(backend="ssh")
    await two_backends.performer.perform_due()
    rig = with_calls(two_backends, Gate("local"))
    (made,) = rig.backends["ssh"].made.values()
    made.seen = Seen.GONE
    for seconds in (0.05, 0.05, 1, 1, 10, 10):  # two looks are enough, unless the computer is busy
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rig.poller.poll(), seconds)
        states = {m["backend"]: m["state"] for m in await rig.rows(t.machines)}
        if states["ssh"] == "gone":
            break
    assert states == {"local": "creating", "ssh": "gone"}


async def test_many_machines_are_one_call_and_the_gone_are_not_asked_for(rig: Rig) -> None:
    await rig.running()
    await rig.poller.poll()
    assert rig.backend.polls == 1
    rig.backend.show((await rig.machine()).id, Seen.GONE)
    for _ in range(5):
        await rig.poller.poll()
    assert rig.backend.polls == 3


async def test_a_machine_that_was_never_answered_for_is_not_polled(rig: Rig) -> None:
    await rig.submit()
    await rig.poller.poll()
    assert rig.backend.polls == 0
