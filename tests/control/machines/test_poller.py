from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.control.fakes import Gate
from tests.control.harness import ControlHarness, other_worker, with_calls

from crucible.backends.base import Seen
from crucible.control.db import schema as t
from crucible.core.errors import TimedOut, Unreachable
from crucible.core.lifecycle import JobState, MachineState, Reason
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.silence import SETTLE_WINDOW


async def launches(harness: ControlHarness) -> list[bool]:
    return [e["done"] for e in await harness.rows(t.effects) if e["kind"] == "launch"]


async def test_one_sighting_is_not_enough(harness: ControlHarness) -> None:
    await harness.running()
    machine = await harness.machine()
    harness.backend.show(machine.id, Seen.GONE)
    await harness.poller.poll()
    assert (await harness.machine()).state is MachineState.UP
    await harness.poller.poll()
    assert (await harness.machine()).state is MachineState.GONE


async def test_a_machine_seen_again_in_between_starts_the_count_anew(harness: ControlHarness) -> None:
    await harness.running()
    machine = await harness.machine()
    for seen in (Seen.GONE, Seen.UP, Seen.GONE, Seen.STARTING, Seen.GONE):
        harness.backend.show(machine.id, seen)
        await harness.poller.poll()
    found = await harness.machine()
    assert (found.state, found.gone_sightings) == (MachineState.UP, 1)


async def seen_gone_once(harness: ControlHarness) -> None:
    """By a list that may be 100 seconds old."""
    harness.backend.capabilities = replace(harness.backend.capabilities, settle_window=100.0)
    await harness.running()
    harness.backend.show((await harness.machine()).id, Seen.GONE)
    await harness.poller.poll()


async def test_two_lists_are_as_far_apart_as_time_has_passed_whatever_the_clock_was_set_to(
    harness: ControlHarness,
) -> None:
    await seen_gone_once(harness)
    harness.clock.set(3600.0)
    await harness.poller.poll()
    assert (await harness.machine()).alive
    harness.clock.set(-7200.0)
    harness.clock.move(100.0)
    await harness.poller.poll()
    assert not (await harness.machine()).alive


async def test_what_a_process_before_it_saw_is_no_first_list(harness: ControlHarness) -> None:
    """Its clock may have been another."""
    await seen_gone_once(harness)
    harness.clock.move(3600.0)
    successor = await other_worker(harness, "w2")
    await successor.poller.poll()
    assert (await harness.machine()).alive
    harness.clock.move(100.0)
    await successor.poller.poll()
    assert not (await harness.machine()).alive


async def test_what_somebody_else_saw_again_in_between_starts_the_time_anew(harness: ControlHarness) -> None:
    await seen_gone_once(harness)
    machine = (await harness.machine()).id
    await harness.change_machine(machine, f.SeenUp())
    harness.clock.move(100.0)
    for _ in range(2):
        await harness.poller.poll()
    assert (await harness.machine()).alive


async def test_a_list_that_lags_behind_a_launch_is_not_believed(harness: ControlHarness) -> None:
    harness.backend.lag = 1
    await harness.submit()
    await harness.performer.perform_due()
    await harness.poller.poll()
    await harness.poller.poll()
    found = await harness.machine()
    assert (found.state, found.gone_sightings) == (MachineState.CREATING, 0)


async def test_halted_is_launched_again_with_the_same_call(harness: ControlHarness) -> None:
    job, _ = await harness.running()
    machine = await harness.machine()
    harness.backend.show(machine.id, Seen.HALTED)
    await harness.poller.poll()
    await harness.poller.poll()
    assert (await harness.machine()).state is MachineState.CREATING
    assert await launches(harness) == [True, False], "one launch is wanted, however often it is seen"
    await harness.performer.perform_due()
    assert harness.backend.launches[0] == harness.backend.launches[1]
    await harness.agents.desired(machine.id, 0, 0)
    assert (await harness.machine()).state is MachineState.UP
    assert (await harness.world(job)).job.state is JobState.RUNNING, "the job never noticed"


@pytest.mark.parametrize(("seen", "reason"), [(Seen.INTERRUPTED, Reason.INTERRUPTED), (Seen.GONE, Reason.MACHINE_LOST)])
async def test_the_cause_of_an_end_decides_the_retry(harness: ControlHarness, seen: Seen, reason: Reason) -> None:
    job, _ = await harness.running()
    harness.backend.show((await harness.machine()).id, seen)
    for _ in range(2):
        await harness.poller.poll()
    await harness.reconciler.round()
    assert (await harness.world(job)).live is not None, "its last messages may still arrive"
    harness.clock.move(SETTLE_WINDOW)
    await harness.reconciler.round()
    world = await harness.world(job)
    assert (world.attempts[0].reason, world.attempts[0].detail) == (reason, f"it is {seen.value}")


async def test_messages_within_the_settle_window_decide(harness: ControlHarness) -> None:
    job, runner = await harness.running()
    harness.backend.show((await harness.machine()).id, Seen.GONE)
    for _ in range(2):
        await harness.poller.poll()
    await runner.end(code=0)
    harness.clock.move(SETTLE_WINDOW)
    await harness.reconciler.round()
    assert (await harness.world(job)).job.state is JobState.COMPLETED


@pytest.mark.parametrize("seen", [Seen.UNREACHABLE, Seen.UP, Seen.STARTING])
async def test_what_is_no_news_writes_nothing(harness: ControlHarness, seen: Seen) -> None:
    await harness.running()
    before = await harness.machine()
    harness.backend.show(before.id, seen)
    for _ in range(3):
        await harness.poller.poll()
    assert await harness.machine() == before


@pytest.mark.parametrize("error", [Unreachable("No answer."), TimedOut("Too late.")])
async def test_one_places_trouble_stops_no_other(two_backends: ControlHarness, error: Exception) -> None:
    harness = two_backends
    await harness.submit()
    await harness.submit(backend="ssh")
    await harness.performer.perform_due()
    harness.backend.down = error
    for made in harness.backends["ssh"].made.values():
        made.seen = Seen.GONE
    for _ in range(2):
        await harness.poller.poll()
    states = {m["backend"]: m["state"] for m in await harness.rows(t.machines)}
    assert states == {"local": "creating", "ssh": "gone"}


async def test_a_place_that_hangs_delays_no_other(two_backends: ControlHarness) -> None:
    await two_backends.submit()
    await two_backends.submit(backend="ssh")
    await two_backends.performer.perform_due()
    harness = with_calls(two_backends, Gate("local"))
    (made,) = harness.backends["ssh"].made.values()
    made.seen = Seen.GONE
    for seconds in (0.05, 0.05, 1, 1, 10, 10):  # two looks are enough, unless the computer is busy
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(harness.poller.poll(), seconds)
        states = {m["backend"]: m["state"] for m in await harness.rows(t.machines)}
        if states["ssh"] == "gone":
            break
    assert states == {"local": "creating", "ssh": "gone"}


async def test_many_machines_are_one_call_and_the_gone_are_not_asked_for(harness: ControlHarness) -> None:
    await harness.running()
    await harness.poller.poll()
    assert harness.backend.polls == 1
    harness.backend.show((await harness.machine()).id, Seen.GONE)
    for _ in range(5):
        await harness.poller.poll()
    assert harness.backend.polls == 3


async def test_a_machine_that_was_never_answered_for_is_not_polled(harness: ControlHarness) -> None:
    await harness.submit()
    await harness.poller.poll()
    assert harness.backend.polls == 0
