"""Every fact in any order: what must hold after each step, whatever came before."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.core.lifecycle.builders import NOW, new_world, next_attempt, own_machine, pool_machine

from crucible.core.job.spec import Retries
from crucible.core.lifecycle import (
    Attempt,
    AttemptState,
    DesiredState,
    EffectKind,
    Fact,
    JobState,
    Machine,
    MachineState,
    Reason,
    Step,
    World,
    advance,
    advance_machine,
)
from crucible.core.lifecycle import facts as f
from crucible.core.lifecycle.outcome import REFUSALS, SUSPENSIONS, UNBEGUN_TRIES
from crucible.core.lifecycle.reasons import Retry

MACHINE_FACTS: list[f.MachineFact] = [
    f.LaunchAnswered("native"),
    f.LaunchRefused("no room"),
    f.LaunchLost("no answer"),
    f.FoundNothing(),
    f.HostSeen(),
    f.SeenUp(),
    f.SeenHalted(),
    f.SeenGone(),
    f.SeenGone(interrupted=True),
]
BUDGETS = st.builds(Retries, interruption=st.integers(0, 3), infrastructure=st.integers(0, 3), user=st.integers(0, 2))
RUNNING = (AttemptState.RUNNING, AttemptState.SAVING)


class AnyOrder(RuleBasedStateMachine):
    """One job, told everything by everyone at any time."""

    @initialize(retries=BUDGETS)
    def submit(self, retries: Retries) -> None:
        self.world = new_world(retries)
        self.now = NOW
        self.launches: list[str] = []

    def tell(self, fact: Fact) -> None:
        before = self.world
        step = advance(before, fact, self.now)
        self.launches += [e.machine for e in step.effects if e.kind is EffectKind.LAUNCH]
        if before.job.state.terminal and isinstance(fact, f.ResumeRequested):
            check_reopened(before, step)
        else:
            check_step(before, step)
        self.world = step.world

    @rule(own=st.booleans(), stale=st.booleans(), state=st.sampled_from(MachineState), data=st.data())
    def place(self, own: bool, stale: bool, state: MachineState, data: st.DataObject) -> None:
        name = f"att-{self.world.job.attempts + 1}"
        machine = own_machine(name) if own else pool_machine(state)
        known = self.world.machines.get(machine.id, machine)
        attempt = next_attempt(self.world, known)
        if stale and self.world.attempts:
            attempt = data.draw(st.sampled_from(self.world.attempts))
        self.tell(f.Placed(attempt, (known,), "it fits", frozenset({known.id}) if own else frozenset()))

    @rule(fact=st.sampled_from([f.Planned(), f.Waits("for a GPU"), f.Tick()]))
    def look(self, fact: Fact) -> None:
        self.tell(fact)

    @rule(seconds=st.sampled_from([0.5, 6.0, 50.0, 4000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.tell(f.Tick())

    @rule()
    def listening_begins(self) -> None:
        self.tell(f.Tick(self.now))

    @precondition(lambda self: self.world.machines)
    @rule(native_id=st.sampled_from(["native", "double"]), data=st.data())
    def host_claims(self, native_id: str, data: st.DataObject) -> None:
        machine = self.world.machines[data.draw(st.sampled_from(sorted(self.world.machines)))]
        if machine.wanted and machine.claimed_by is None:
            self.world = self.world.with_machine(replace(machine, claimed_by=native_id))

    @rule(kind=st.sampled_from(["staging", "started", "exited", "ended", "heard"]), data=st.data())
    def report(self, kind: str, data: st.DataObject) -> None:
        known = [a.id for a in self.world.attempts]
        attempt = data.draw(st.sampled_from([*known[-1:], *known, "att-of-another"]))
        reason = data.draw(st.sampled_from(Reason))
        facts: dict[str, Fact] = {
            "staging": f.RunnerStaging(attempt, "the code"),
            "started": f.RunnerStarted(attempt, 0, 7),
            "exited": f.RunnerExited(attempt, 0, reason, 1),
            "ended": f.RunnerEnded(attempt, 0),
            "heard": f.RunnerContacted(attempt),
        }
        self.tell(facts[kind])

    @precondition(lambda self: self.world.machines)
    @rule(fact=st.sampled_from(MACHINE_FACTS), times=st.integers(1, 2), data=st.data())
    def machine_changes(self, fact: f.MachineFact, times: int, data: st.DataObject) -> None:
        machine = self.world.machines[data.draw(st.sampled_from(sorted(self.world.machines)))]
        for _ in range(times):
            machine = advance_machine(machine, fact, self.now).machine
        self.world = self.world.with_machine(machine)
        self.tell(f.Tick())

    @precondition(lambda self: self.world.job.attempts > 1)
    @rule()
    def cancel(self) -> None:
        self.tell(f.CancelRequested())

    @rule(kind=st.sampled_from(["notice", "checkpoint", "unsaved", "resume"]), seconds=st.floats(0, 120))
    def all_else(self, kind: str, seconds: float) -> None:
        attempt = self.world.attempts[-1].id if self.world.attempts else "att-0"
        facts: dict[str, Fact] = {
            "notice": f.InterruptionNoticed(attempt, seconds),
            "checkpoint": f.CheckpointRequested(),
            "unsaved": f.NothingSaved(),
            "resume": f.ResumeRequested("ckp-1"),
        }
        self.tell(facts[kind])

    @rule(chance=st.integers(0, 9))
    def seldom(self, chance: int) -> None:
        """Ends of the whole job at any time, but not so often that nothing else is seen."""
        if chance == 0:
            self.tell(f.CancelRequested())

    @invariant()
    def the_world_is_sound(self) -> None:
        check_world(self.world)
        assert len(self.launches) == len(set(self.launches)), "advance launches a machine once"


def check_step(before: World, step: Step) -> None:
    job, was = step.world.job, before.job
    assert {e.machine for e in step.effects} <= set(step.world.machines)
    assert step.touched <= {s.machine for a in step.world.attempts for s in a.slots}
    assert job.events == was.events, "events are counted where they are stored"
    if was.state.terminal:
        assert step == Step(before)
    if was.desired is DesiredState.CANCEL:
        assert job.desired is DesiredState.CANCEL
        assert len(step.world.attempts) == len(before.attempts), "no new attempt after a cancel"
        assert not any(e.kind is EffectKind.LAUNCH for e in step.effects)
    for attempt in before.attempts:
        if not attempt.live:
            assert attempt in step.world.attempts, "what has ended does not change"


def check_reopened(before: World, step: Step) -> None:
    job = step.world.job
    assert (job.state, job.desired) == (JobState.QUEUED, DesiredState.RUN)
    assert job.generation == before.job.generation + 1
    assert job.attempts_before_reopen == len(before.attempts)
    assert step.world.attempts == before.attempts
    assert step.effects == ()


def check_world(world: World) -> None:
    job, live = world.job, world.live
    assert [a.number for a in world.attempts] == list(range(1, job.attempts + 1))
    assert all(not a.live for a in world.attempts[:-1]), "at most the last attempt lives"
    assert Retry.NEVER not in job.used
    budgets = {
        **job.spec.retries.model_dump(),
        Retry.UNBEGUN.value: UNBEGUN_TRIES,
        Retry.REFUSAL.value: REFUSALS,
        Retry.SUSPENSION.value: SUSPENSIONS,
    }
    assert all(used <= budgets[retry.value] for retry, used in job.used.items())
    if live is None:
        check_at_rest(world)
    else:
        assert job.due_at is not None
        assert job.state is expected_phase(world, live)
    for attempt in world.attempts:
        check_attempt(world, attempt)


def check_at_rest(world: World) -> None:
    job = world.job
    assert job.state is JobState.QUEUED or job.state.terminal
    assert (job.ended_at is not None) == job.state.terminal
    assert job.due_at is None
    if job.state.terminal:
        assert job.reason is not None
        assert job.reason.policy.outcome is job.state
        assert job.conditions == frozenset()
        assert job.desired is not DesiredState.CANCEL or job.state in (JobState.CANCELLED, JobState.COMPLETED)


def expected_phase(world: World, live: Attempt) -> JobState:
    if world.job.desired is not DesiredState.RUN:
        return JobState.STOPPING
    if live.state in RUNNING:
        return JobState.RUNNING
    up = all(world.machines[slot.machine].state is MachineState.UP for slot in live.slots)
    return JobState.STARTING if up or live.state is AttemptState.STAGING else JobState.PROVISIONING


def check_attempt(world: World, attempt: Attempt) -> None:
    if attempt.live:
        assert attempt.ended_at is None
        return
    assert attempt.reason is not None
    assert all(slot.ended for slot in attempt.slots), "no runner of an ended attempt can be running"
    machines: list[Machine] = [world.machines[slot.machine] for slot in attempt.slots]
    assert not any(m.wanted for m in machines if m.owner == f"attempt:{attempt.id}")


AnyOrder.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
TestAnyOrder = AnyOrder.TestCase


@pytest.mark.parametrize("seed", range(20))
def test_the_answer_follows_from_the_input_alone_and_leaves_it_as_it_was(seed: int) -> None:
    chance, world = random.Random(seed), new_world()
    for second in range(60):
        fact, now = some_fact(chance, world), NOW + 7.0 * second
        kept_world, kept_fact = copy.deepcopy((world, fact))
        step = advance(world, fact, now)
        assert (world, fact) == (kept_world, kept_fact)
        assert step == advance(kept_world, kept_fact, now)
        world = step.world


@pytest.mark.parametrize("seed", range(100))
def test_whatever_happened_a_job_is_settled_or_queued_once_its_runner_has_ended(seed: int) -> None:
    chance, world, now = random.Random(seed), new_world(), NOW
    for _ in range(60):
        now += chance.choice([0.1, 1.0, 60.0])
        world = advance(world, some_fact(chance, world), now).world
    if world.live is not None:
        world = advance(world, f.RunnerEnded(world.live.id, 0), now).world
    assert world.job.state is JobState.QUEUED or world.job.state.terminal
    check_world(world)


def some_fact(chance: random.Random, world: World) -> Fact:
    attempt = world.attempts[-1].id if world.attempts else "att-0"
    return chance.choice(
        [
            f.Placed(next_attempt(world, pool_machine()), (pool_machine(),), "it fits"),
            f.RunnerStaging(attempt, "the code"),
            f.RunnerStarted(attempt, 0, 7),
            f.RunnerExited(attempt, 0, chance.choice(list(Reason))),
            f.RunnerEnded(attempt, 0),
            f.RunnerContacted(attempt),
            f.Tick(),
            f.CancelRequested() if chance.random() < 0.05 else f.Waits("its turn"),
        ]
    )
