from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.control.fakes import CAPACITY, START, FakeBackend
from tests.control.harness import job_spec, make_attempt, make_machine, new_id

from crucible.control.jobs import views
from crucible.control.jobs.views import (
    AttemptDetails,
    attempt_view,
    backend_view,
    event_view,
    iso,
    job_view,
    machine_view,
)
from crucible.core.compute.offers import Market, Offer
from crucible.core.compute.pricing import Segment
from crucible.core.compute.resources import Allocation, Resources
from crucible.core.ids import Prefix
from crucible.core.job.spec import EnvironmentSpec, Kind, Source, SourceKind
from crucible.core.job.states import Condition, DesiredState
from crucible.core.lifecycle import AttemptState, Job, JobState, MachineState, Reason, World
from crucible.core.views.base import SOMETIMES, View
from crucible.core.views.jobs import CheckpointMark, CostView, JobView, ProgressView

JOB_KEYS = {
    "id",
    "bundle",
    "short",
    "name",
    "kind",
    "project",
    "status",
    "phase",
    "desired",
    "backend",
    "machine",
    "user",
    "tier",
    "grace_seconds",
    "resources",
    "ran_seconds",
    "reason",
    "waiting",
    "placement",
    "progress",
    "cost",
    "conditions",
    "exit_code",
    "signal",
    "attempt",
    "attempts",
    "created_at",
    "started_at",
    "ended_at",
    "command",
    "source",
    "environment",
    "tags",
    "secrets",
    "execution_id",
    "simulated",
    "previous_backend",
    "generation",
    "fallback",
    "market",
    "rerun_of",
    "checkpoint",
}
ATTEMPT_KEYS = {
    "number",
    "id",
    "state",
    "reason",
    "backend",
    "machine",
    "exit_code",
    "signal",
    "started_at",
    "ended_at",
}
NOT_FILLED = {
    "environment.interpreter": "an environment has requirements instead",
    "environment.project": "an environment has requirements instead",
}
"""Fields that stay at their default in `full_views`, with the reason."""
MACHINE = new_id(Prefix.MACHINE, 1)
ATTEMPT = new_id(Prefix.ATTEMPT, 1)


def a_job(**more: Any) -> Job:
    given = {
        "id": new_id(Prefix.JOB, 1),
        "spec": job_spec(),
        "resources": Resources(cpus=1),
        "created_at": START,
    }
    return Job(**{**given, **more})


def a_world(job: Job | None = None, *, rate: int = 0, owner: str = "pool:local", **attempt: Any) -> World:
    job = job or a_job(state=JobState.RUNNING)
    machine = make_machine(MACHINE, rate=rate, owner=owner, bills=bool(rate))
    given = {"state": AttemptState.RUNNING, "pid": 77, **attempt}
    return World(job, (make_attempt(job, MACHINE, ATTEMPT, **given),), {MACHINE: machine})


def view(world: World, *, ahead: int = 0, now: float = START + 3600, **given: Any) -> JobView:
    details = {ATTEMPT: given.get("details", AttemptDetails())}
    return job_view(world, details, {MACHINE: given.get("segments", [])}, ahead, now)


def progress(**reported: Any) -> AttemptDetails:
    return AttemptDetails(ProgressView(**reported))


@pytest.mark.parametrize("world", [World(a_job()), a_world()])
def test_a_job_has_exactly_the_keys_that_were_promised(world: World) -> None:
    shown: Any = view(world).as_json()
    assert set(shown) == JOB_KEYS
    assert set(shown["cost"]) == {
        "usd",
        "micros",
        "rate_micros_per_hour",
        "estimated_remaining_micros",
        "remaining_unknown",
    }
    assert all(set(attempt) >= ATTEMPT_KEYS for attempt in shown["attempts"])
    json.dumps(shown, allow_nan=False)


FULL_SPEC = job_spec(
    name="first try",
    kind=Kind.BENCHMARK,
    bundle="0" * 64,
    environment=EnvironmentSpec(requirements=("numpy",), python="3.12", origin="requirements.txt"),
    secrets={"TOKEN": "hf-token"},
    fallback=("local",),
    market=Market.SPOT,
    tier="CPU_SMALL",
    grace_seconds=30,
    tags=("vision",),
    rerun_of=new_id(Prefix.JOB, 9),
    priority=5,
    spot_fallback=True,
    max_wait_seconds=7200.0,
    outputs=("*.pt",),
    source=Source(kind=SourceKind.GIT, path="/x", url="https://example.org/r.git", ref="main", commit="a", dirty=True),
)
FULL_JOB = {
    "spec": FULL_SPEC,
    "user": "ann",
    "project": "vision",
    "generation": 2,
    "attempts": 2,
    "desired": DesiredState.CANCEL,
    "detail": "It was killed.",
    "placement": "local because it fits",
    "conditions": frozenset({Condition.UNREACHABLE}),
    "exit_code": 1,
    "signal": 9,
    "started_at": START,
    "ended_at": START + 60,
}


def full_views() -> list[JobView]:
    """Return views of a job that has everything: while it waits, while it runs, and after its end."""
    mark = CheckpointMark(id="ckp-1", short="ckp-1", name="step-1", step=1)
    details = AttemptDetails(
        ProgressView(
            fraction=0.5, epoch=1, total_epochs=2, step=5, total_steps=10, loss=0.1, eta_seconds=60, message="goes"
        ),
        {"started": {"pid": 77}},
        mark,
    )
    made = []
    for state, reason in ((JobState.QUEUED, None), (JobState.RUNNING, None), (JobState.FAILED, Reason.EXIT_CODE)):
        job = a_job(**FULL_JOB, state=state, reason=reason, waiting="waits for 4 CPUs")
        machine = make_machine(
            MACHINE, rate=3_600_000_000, bills=True, simulated=True, region="here", instance_type="big"
        )
        ended = {} if state is JobState.RUNNING else {"state": AttemptState.ENDED, "ended_at": START + 60}
        last = {"pid": 77, "started_at": START, "exit_code": 1, "signal": 9, "last_seen": START, **ended}
        first = make_attempt(job, MACHINE, new_id(Prefix.ATTEMPT, 2), number=1, backend="rehearsal", ended_at=START)
        attempt = make_attempt(job, MACHINE, ATTEMPT, number=2, reason=Reason.KILLED, detail="Killed.", **last)
        world = World(job, (replace(first, state=AttemptState.ENDED), attempt), {MACHINE: machine})
        made.append(job_view(world, {ATTEMPT: details}, {}, 1, START + 30, mark))
    return made


def left_at_default(view: View, path: str = "") -> set[str]:
    """Return the fields of a view that have their default, those of a view within it as `cost.usd`."""
    found = set()
    for name, field in type(view).model_fields.items():
        value = getattr(view, name)
        values = [value] if isinstance(value, View) else value if isinstance(value, tuple) else []
        within = [item for item in values if isinstance(item, View)]
        if isinstance(field.json_schema_extra, dict) and SOMETIMES in field.json_schema_extra:
            continue
        if within:
            found |= set.intersection(*(left_at_default(item, f"{path}{name}.") for item in within))
        elif value == field.get_default(call_default_factory=True):
            found.add(f"{path}{name}")
    return found


def test_every_field_of_a_job_is_filled() -> None:
    """A field found here was forgotten in control/jobs/views.py, or should be declared with `sometimes`."""
    assert set.intersection(*map(left_at_default, full_views())) == NOT_FILLED.keys()


def test_a_job_that_has_not_been_placed() -> None:
    shown = view(World(a_job(state=JobState.QUEUED)))
    assert (shown.status, shown.phase, shown.attempt, shown.attempts) == (
        "queued",
        "queued",
        0,
        (),
    )
    assert (shown.backend, shown.machine, shown.execution_id) == ("local", None, None)
    assert shown.cost.usd == "0.000000"


def test_outputs_that_were_not_stored() -> None:
    ended = {"complete": False, "text": "1 output was not stored: a.bin"}
    shown = view(a_world(), details=AttemptDetails(ProgressView(), {"ended": ended}))
    assert shown.outputs_left_out == "1 output was not stored: a.bin"
    assert view(a_world()).outputs_left_out is None


def test_a_running_job() -> None:
    shown = view(a_world(), details=AttemptDetails(ProgressView(fraction=0.5), {"started": {"pid": 77}}))
    assert (shown.status, shown.backend, shown.machine, shown.attempt) == (
        "running",
        "local",
        MACHINE,
        1,
    )
    assert shown.execution_id == f"local-{shown.id}-77"
    assert shown.progress == ProgressView(fraction=0.5, percent=50.0)
    assert shown.attempts[0].facts == {"started": {"pid": 77}}
    assert shown.created_at == "2023-11-14T22:13:20.000Z"
    assert shown.short == "job-" + shown.id[-6:]
    assert not shown.simulated


@pytest.mark.parametrize(
    ("waiting", "ahead", "text"),
    [
        ("", 0, "waits for its turn"),
        ("waits for 4 CPUs: 1 free, held by job-abc", 0, "waits for 4 CPUs: 1 free, held by job-abc"),
        ("", 1, "behind 1 other job in the queue"),
        ("", 3, "behind 3 other jobs in the queue"),
    ],
)
def test_a_waiting_job_says_what_it_waits_for(waiting: str, ahead: int, text: str) -> None:
    assert view(World(a_job(state=JobState.QUEUED, waiting=waiting)), ahead=ahead).waiting == text


def test_a_job_that_does_not_wait_says_nothing() -> None:
    assert view(a_world(a_job(state=JobState.RUNNING, waiting="old"))).waiting is None


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_is_told_in_words(reason: Reason) -> None:
    shown = view(World(a_job(state=JobState.FAILED, reason=reason, detail="Killed."))).reason
    assert shown.code == reason.value
    assert shown.message.startswith(reason.policy.message[:-1])
    assert "Killed." in shown.message
    assert shown.advice is None or "{" not in shown.advice


def test_advice_names_the_job() -> None:
    shown = view(World(a_job(state=JobState.FAILED, reason=Reason.EXIT_CODE)))
    assert shown.reason is not None
    assert str(shown.reason.advice).endswith(f"crucible logs {shown.short}")


def test_conditions_are_sorted() -> None:
    job = a_job(state=JobState.RUNNING, conditions=frozenset({Condition.UNREACHABLE, Condition.OVER_BUDGET}))
    assert view(a_world(job)).conditions == ("over_budget", "unreachable")


def test_the_uncommitted_changes_are_not_shown_in_every_view() -> None:
    job = a_job(spec=job_spec(source={"kind": "git", "commit": "abc", "diff": "x" * 1000}))
    assert "diff" not in view(World(job)).source.as_json()


# Cost


def test_a_free_place_costs_nothing_and_never_will() -> None:
    cost = view(a_world(), details=progress(eta_seconds=50)).cost
    assert cost == CostView(
        usd="0.000000",
        micros=0,
        rate_micros_per_hour=0,
        estimated_remaining_micros=0,
        remaining_unknown=None,
    )


def test_a_machine_of_its_own_is_paid_whole() -> None:
    world = a_world(rate=526_000, owner=f"attempt:{ATTEMPT}")
    segments = [Segment(START, None, 526_000)]
    cost = view(world, segments=segments, details=progress(eta_seconds=1800)).cost
    assert cost == CostView(
        usd="0.526000",
        micros=526_000,
        rate_micros_per_hour=526_000,
        estimated_remaining_micros=263_000,
        remaining_unknown=None,
    )


def test_of_a_shared_machine_its_part_for_its_time_is_paid() -> None:
    world = a_world(rate=1_000_000, ended_at=START + 1800, state=AttemptState.ENDED)
    cost = view(world, segments=[Segment(START - 7200, None, 1_000_000)]).cost
    assert cost.micros == 125_000, "one of four CPUs for half an hour"
    assert (cost.rate_micros_per_hour, cost.estimated_remaining_micros) == (0, None)


@pytest.mark.parametrize("eta", [None, float("inf"), float("nan")])
def test_an_end_that_is_not_known_has_no_price(eta: float | None) -> None:
    world = a_world(rate=526_000, owner=f"attempt:{ATTEMPT}")
    cost = view(world, details=progress(eta_seconds=eta)).cost
    assert cost.estimated_remaining_micros is None
    assert cost.remaining_unknown == "its program reports no total of epochs or steps, so its end is unknown"


def test_before_there_is_a_machine_there_is_no_price() -> None:
    cost = view(World(a_job(state=JobState.QUEUED))).cost
    assert cost.estimated_remaining_micros is None
    assert cost.remaining_unknown == "it has no machine yet, and so no price"


def test_after_its_end_a_job_costs_no_more_unless_a_machine_is_left() -> None:
    job = {"state": JobState.COMPLETED}
    over = {"state": AttemptState.ENDED, "ended_at": START + 60}
    cost = view(World(a_job(**job))).cost
    assert (cost.estimated_remaining_micros, cost.remaining_unknown) == (0, None)
    world = a_world(rate=526_000, owner=f"attempt:{ATTEMPT}", **over)
    cost = view(World(a_job(**job), world.attempts, world.machines)).cost
    assert (cost.estimated_remaining_micros, cost.remaining_unknown) == (None, "one of its machines is not gone yet")


@pytest.mark.parametrize(("fraction", "percent"), [(0.12345, 12.3), (1, 100), (None, None)])
def test_progress_is_told_in_percent_too(fraction: object, percent: float | None) -> None:
    shown = view(a_world(), details=progress(fraction=fraction)).progress
    assert shown is not None
    assert shown.percent == percent


def test_every_attempt_is_paid_for() -> None:
    world = a_world(rate=1_000_000, ended_at=START + 1800, state=AttemptState.ENDED)
    again = replace(
        world.attempts[0],
        id=new_id(Prefix.ATTEMPT, 2),
        number=2,
        placed_at=START + 1800,
        ended_at=START + 3600,
    )
    assert view(World(world.job, (*world.attempts, again), world.machines)).cost.micros == 250_000


# Others


def test_an_attempt() -> None:
    job = a_job()
    attempt = make_attempt(
        job, MACHINE, ATTEMPT, state=AttemptState.ENDED, reason=Reason.KILLED, detail="Killed.", signal=9
    )
    shown = attempt_view(attempt, AttemptDetails(), World(job))
    assert (shown.state, shown.reason, shown.detail, shown.signal) == (
        "ended",
        "killed",
        "Killed.",
        9,
    )
    assert shown.allocation == Allocation(cpus=1.0, memory_bytes=1024**3)


def test_a_machine_bills_until_it_is_gone() -> None:
    machine = make_machine(MACHINE, rate=3_600_000_000, bills=True, native_id="i-1")
    shown = machine_view(machine, [Segment(START, None, machine.rate)], START + 2)
    assert (shown.bills, shown.cost_micros) == (True, 2_000_000)
    gone = replace(machine, state=MachineState.GONE, gone_at=START + 1)
    shown = machine_view(gone, [Segment(START, START + 1, machine.rate)], START + 99)
    assert (shown.bills, shown.cost_micros, shown.gone_at) == (False, 1_000_000, iso(START + 1))
    shown.model_dump_json()


def test_a_backend_with_and_without_offers() -> None:
    backend = FakeBackend()
    offer = Offer("local", "here", "this computer", CAPACITY, 0)
    shown = backend_view(backend, [offer, replace(offer, why_not="too small")])
    assert (shown.connected, shown.detail) == (True, "too small")
    assert not backend_view(backend, []).connected
    shown.model_dump_json()


def test_an_event_of_one_job_and_of_all() -> None:
    row = {"n": 3, "type": "started", "at": START, "data": '{"pid": 7}', "cursor": 9, "job": "job-x"}
    assert event_view(row, with_job=False).as_json() == {
        "n": 3,
        "type": "started",
        "at": iso(START),
        "data": {"pid": 7},
    }
    of_all = {**event_view(row, with_job=False).as_json(), "cursor": 9, "job": "job-x"}
    assert event_view(row, with_job=True).as_json() == of_all


def test_half_a_character_in_what_a_runner_sent_can_be_answered() -> None:
    row = {"n": 3, "type": "note", "at": START, "data": json.dumps({"text": "a\ud800 \U0001f600 ü"})}
    assert json.loads(event_view(row, with_job=False).model_dump_json())["data"] == {"text": "a? \U0001f600 ü"}


def test_times_are_utc_with_milliseconds() -> None:
    assert views.iso(0) == "1970-01-01T00:00:00.000Z"
    assert views.iso(1.5) == "1970-01-01T00:00:01.500Z"
    assert views.iso(None) is None
