"""Views of jobs, machines and backends, the same for the API, the command line and the Python client."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, overload

from crucible.backends.base import Backend, Capabilities
from crucible.control.jobs.labels import JobLabels
from crucible.core.compute import pricing
from crucible.core.compute.offers import Nodes, Offer, OnDemand, ProviderQueue
from crucible.core.compute.pricing import Segment
from crucible.core.ids import short
from crucible.core.job.spec import ALL_OUTPUTS, EnvironmentSpec, Source
from crucible.core.job.states import Condition
from crucible.core.lifecycle import Attempt, Job, JobState, Machine, Slot, World, status_of
from crucible.core.people.identity import OWNER
from crucible.core.views.compute import BackendView, BillingView, CapabilitiesView, MachineView, OfferView
from crucible.core.views.jobs import (
    AttemptView,
    CheckpointMark,
    CostView,
    EnvironmentView,
    JobView,
    ProgressView,
    ReasonView,
    SourceView,
)
from crucible.core.views.records import EventView

MAX_DETAIL = 300
"""Characters of a reason's detail that a job shows; the attempt has all of it."""

MAX_AHEAD = 1000
"""Jobs ahead in the queue that are counted; beyond it is `more than`."""


@dataclass(frozen=True)
class AttemptDetails:
    """What the runner of an attempt reported, and the checkpoint that the attempt began with."""

    progress: ProgressView | None = None
    facts: dict[str, object] | None = None
    resume_from: CheckpointMark | None = None


Details = Mapping[str, AttemptDetails]
"""By attempt id."""

_NO_DETAILS = AttemptDetails()


def job_view(
    world: World,
    details: Details,
    prices: Mapping[str, Sequence[Segment]],
    ahead: int,
    now: float,
    checkpoint: CheckpointMark | None = None,
    labels: JobLabels | None = None,
) -> JobView:
    """Return the view of a job.

    `ahead` counts the jobs ahead of it in the queue; `checkpoint` is the newest that is kept; `labels` are its current
    name and tags.
    """
    job, spec = world.job, world.job.spec
    last = world.attempts[-1] if world.attempts else None
    progress = _progress(job, details.get(last.id, _NO_DETAILS).progress if last else None)
    labels = labels or JobLabels.from_spec(spec)
    # Left out at their defaults, as before jobs had them.
    later = {"priority": spec.priority, "spot_fallback": spec.spot_fallback}
    sometimes: dict[str, Any] = {name: value for name, value in later.items() if value}
    if spec.max_wait_seconds is not None:
        sometimes["max_wait_seconds"] = spec.max_wait_seconds
    if spec.outputs != ALL_OUTPUTS:
        sometimes["outputs"] = spec.outputs
    left_out = _outputs_left_out(details.get(last.id, _NO_DETAILS).facts) if last else None
    if left_out is not None:
        sometimes["outputs_left_out"] = left_out
    return JobView(
        id=job.id,
        short=short(job.id),
        name=labels.name,
        project=job.project,
        user=job.user or OWNER.name,
        kind=spec.kind.value,
        created_at=iso(job.created_at),
        command=spec.command,
        bundle=spec.bundle,
        source=_source_view(spec.source),
        environment=_environment_view(spec.environment),
        tags=tuple(map(str, labels.tags)),
        secrets=dict(spec.secrets),
        tier=spec.tier,
        resources=job.resources,
        grace_seconds=spec.grace_seconds,
        fallback=spec.fallback,
        market=spec.market.value if spec.market else None,
        rerun_of=spec.rerun_of,
        status=status_of(job.state).value,
        phase=job.state.value,
        desired=job.desired.value,
        generation=job.generation,
        backend=last.backend if last else job.backend,
        previous_backend=_previous_backend(world),
        machine=last.slots[0].machine if last else None,
        placement=job.placement or None,
        simulated=any(machine.simulated for machine in world.machines.values()),
        reason=_reason(job),
        waiting=_waiting(job, ahead),
        progress=progress,
        checkpoint=checkpoint,
        cost=_cost(world, prices, progress, now),
        conditions=_conditions(world),
        exit_code=job.exit_code,
        signal=job.signal,
        attempt=last.number if last else 0,
        attempts=tuple(attempt_view(a, details.get(a.id, _NO_DETAILS), world) for a in world.attempts),
        started_at=iso(job.started_at),
        ended_at=iso(job.ended_at),
        ran_seconds=_run_seconds(world, details, now),
        execution_id=f"{last.backend}-{job.id}-{last.pid}" if last and last.pid else None,
        **sometimes,
    )


def _outputs_left_out(facts: dict[str, object] | None) -> str | None:
    ended = facts.get("ended") if facts else None
    return str(ended.get("text"))[:2000] if isinstance(ended, Mapping) else None


def _source_view(source: Source) -> SourceView:
    """Return where the code came from, without its uncommitted changes."""
    return SourceView(
        kind=source.kind.value,
        path=source.path,
        url=source.url,
        ref=source.ref,
        commit=source.commit,
        dirty=source.dirty,
    )


def _environment_view(environment: EnvironmentSpec) -> EnvironmentView:
    return EnvironmentView(
        interpreter=environment.interpreter,
        requirements=environment.requirements,
        project=environment.project,
        python=environment.python,
        origin=environment.origin,
    )


def attempt_view(attempt: Attempt, details: AttemptDetails, world: World) -> AttemptView:
    machine = world.machines.get(attempt.slots[0].machine)
    return AttemptView(
        id=attempt.id,
        number=attempt.number,
        state=attempt.state.value,
        reason=attempt.reason.value if attempt.reason else None,
        detail=attempt.detail or None,
        backend=attempt.backend,
        machine=attempt.slots[0].machine,
        region=machine.region if machine else None,
        instance_type=machine.instance_type if machine else None,
        market=machine.market.value if machine else None,
        simulated=bool(machine and machine.simulated),
        resume_from=details.resume_from,
        progress=details.progress,
        allocation=attempt.slots[0].allocation,
        exit_code=attempt.exit_code,
        signal=attempt.signal,
        placed_at=iso(attempt.placed_at),
        started_at=iso(attempt.started_at),
        ended_at=iso(attempt.ended_at),
        last_seen=iso(attempt.last_seen),
        facts=_shown_facts(details.facts),
    )


def _shown_facts(facts: dict[str, object] | None) -> dict[str, object] | None:
    """Return what the runner reported without the list of packages, which may be long and is only for reruns."""
    started = facts.get("started") if facts else None
    if facts is None or not isinstance(started, Mapping):
        return facts
    return {**facts, "started": {name: value for name, value in started.items() if name != "packages"}}


def machine_view(machine: Machine, segments: Sequence[Segment], now: float, stays: str = "") -> MachineView:
    """Return a machine; `stays` is why it does not end, if it should."""
    detail = f"{machine.detail}; it does not end yet: {stays}" if stays and machine.alive else machine.detail
    return MachineView(
        id=machine.id,
        short=short(machine.id),
        backend=machine.backend,
        state=machine.state.value,
        owner=machine.owner,
        instance_type=machine.instance_type,
        region=machine.region,
        market=machine.market.value,
        simulated=machine.simulated,
        native_id=machine.native_id,
        capacity=machine.capacity,
        rate_micros_per_hour=machine.rate,
        cost_micros=pricing.machine_cost(segments, machine.billing, now),
        bills=machine.is_billed,
        detail=detail or None,
        created_at=iso(machine.created_at),
        queued_at=iso(machine.queued_at),
        started_at=iso(machine.started_at),
        up_at=iso(machine.up_at),
        gone_at=iso(machine.gone_at),
        last_seen=iso(machine.last_seen),
        ends_at=iso(machine.ends_at),
    )


_SLOTS = {Nodes: "counted", OnDemand: "elastic", ProviderQueue: "theirs"}


def backend_view(backend: Backend, offers: Sequence[Offer]) -> BackendView:
    return BackendView(
        name=backend.name,
        connected=bool(offers),
        detail="; ".join(o.why_not for o in offers if o.why_not) or None,
        capabilities=_capabilities_view(backend.capabilities),
        offers=tuple(offer_view(offer) for offer in offers),
    )


def _capabilities_view(can: Capabilities) -> CapabilitiesView:
    return CapabilitiesView(
        reach=can.reach.value,
        slots=_SLOTS[type(can.capacity)],
        markets=tuple(sorted(can.markets)),
        bills=can.bills,
        shared_machines=can.shares_machines,
        in_place=can.in_place,
        agent_python=can.agent_python,
        simulated=can.simulated,
        max_runtime=can.max_runtime,
        launch_deadline=can.launch_deadline,
        settle_window=can.settle_window,
    )


def offer_view(offer: Offer) -> OfferView:
    return OfferView(
        backend=offer.backend,
        region=offer.region,
        instance_type=offer.instance_type,
        capacity=offer.capacity,
        market=offer.market,
        rate_micros_per_hour=offer.rate,
        billing=BillingView(granularity=offer.billing.granularity, minimum=offer.billing.minimum),
        availability=offer.availability.value,
        wait_seconds=offer.wait_seconds,
        startup_seconds=offer.startup_seconds,
        dated=offer.dated,
        runnable=offer.runnable,
        why=offer.why_not or None,
    )


def event_view(row: Mapping[str, Any], *, with_job: bool) -> EventView:
    """Return an event; `with_job` as in the feed of all jobs."""
    about = {"cursor": row["cursor"], "job": row["job"]} if with_job else {}
    return EventView(n=row["n"], type=row["type"], at=iso(row["at"]), data=stored_json(row["data"]), **about)


def stored_json(text: str) -> Any:
    """Return the value of JSON that a runner sent. Half a surrogate pair, which no response can hold, becomes `?`."""
    value = json.loads(text)
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace")) if "\\ud" in text else value


def _previous_backend(world: World) -> str | None:
    """Return the last backend of an attempt that differs from the current one."""
    names = [a.backend for a in world.attempts]
    return next((name for name in reversed(names) if name != names[-1]), None)


def _conditions(world: World) -> tuple[str, ...]:
    """Return the conditions; an ended job is still billing while a machine of its own is not gone."""
    owned = [m for a in world.attempts for s in a.slots if (m := world.machines.get(s.machine)) and m.belongs_to(a)]
    owing = world.job.state.terminal and any(m.is_billed for m in owned)
    shown = world.job.conditions | ({Condition.STILL_BILLING} if owing else set())
    return tuple(sorted(condition.value for condition in shown))


@overload
def iso(seconds: float) -> str: ...


@overload
def iso(seconds: object) -> str | None: ...


def iso(seconds: object) -> str | None:
    if not isinstance(seconds, int | float):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _run_seconds(world: World, details: Details, now: float) -> float | None:
    """Return how long the program ran, over all attempts, by the runners' own clocks where they reported it."""
    times = [
        _attempt_seconds(a, details.get(a.id, _NO_DETAILS), now) for a in world.attempts if a.started_at is not None
    ]
    return round(sum(times), 3) if times else None


def _attempt_seconds(attempt: Attempt, details: AttemptDetails, now: float) -> float:
    reported = reported_seconds(details.facts)
    if reported is not None:
        return reported
    return max((attempt.exited_at or attempt.ended_at or now) - (attempt.started_at or now), 0.0)


def reported_seconds(facts: object) -> float | None:
    """Return how long the program of an attempt ran by its runner's clock, or None if that was not reported."""
    exited = facts.get("exited") if isinstance(facts, Mapping) else None
    seconds = exited.get("seconds") if isinstance(exited, Mapping) else None
    return max(float(seconds), 0.0) if isinstance(seconds, int | float) else None


def _progress(job: Job, last: ProgressView | None) -> ProgressView | None:
    """Return the last reported progress; that of a completed job is 100 %, whatever it reported last."""
    if last is None:
        return None
    if job.state is JobState.COMPLETED and last.fraction is not None:
        return last.model_copy(update={"fraction": 1.0, "percent": 100.0, "eta_seconds": 0.0})
    percent = None if last.fraction is None else round(100 * last.fraction, 1)
    return last.model_copy(update={"percent": percent})


def _reason(job: Job) -> ReasonView | None:
    if job.reason is None:
        return None
    verdict = job.reason.policy
    detail = " ".join(job.detail.split())[:MAX_DETAIL]
    message = f"{verdict.message} ({detail})" if detail else verdict.message
    return ReasonView(code=job.reason.value, message=message, advice=verdict.advice.format(job=short(job.id)) or None)


def _waiting(job: Job, ahead: int) -> str | None:
    if job.state is JobState.PROVISIONING:
        return job.waiting or None  # its machine waits in its provider's own queue
    if job.state is not JobState.QUEUED:
        return None
    if ahead > MAX_AHEAD:
        return f"behind more than {MAX_AHEAD} other jobs in the queue"
    if ahead:
        return f"behind {ahead} other job{'s' if ahead > 1 else ''} in the queue"
    return job.waiting or "waits for its turn"


def _cost(world: World, prices: Mapping[str, Sequence[Segment]], progress: ProgressView | None, now: float) -> CostView:
    spent = sum(_attempt_cost(world, a, prices, now) for a in world.attempts)
    live = world.live
    rate = _rate(world, live) if live else 0
    remaining = pricing.remaining_cost(rate, progress.eta_seconds) if live and progress else None
    why = None if live and (remaining is not None or not rate) else _why_unknown(world)
    nothing = not rate if live else world.job.state.terminal and why is None
    return CostView(
        usd=pricing.format_usd(spent),
        micros=spent,
        rate_micros_per_hour=rate,
        estimated_remaining_micros=0 if nothing else remaining,
        remaining_unknown=why,
    )


def _why_unknown(world: World) -> str | None:
    """Return why the remaining cost is unknown; None if nothing is left to pay."""
    if world.job.state.terminal:
        return "one of its machines is not gone yet" if Condition.STILL_BILLING.value in _conditions(world) else None
    if world.live is None:
        return "it has no machine yet, and so no price"
    return "its program reports no total of epochs or steps, so its end is unknown"


def _rate(world: World, attempt: Attempt) -> int:
    """Return micro-dollars per hour while this attempt runs; a machine that waits at its provider costs nothing."""
    held = [(s, world.machines[s.machine]) for s in attempt.slots if s.machine in world.machines]
    started = [(slot, machine) for slot, machine in held if machine.started_at is not None]
    return sum(m.rate if m.belongs_to(attempt) else math.ceil(m.rate * _slot_share(s, m)) for s, m in started)


def _slot_share(slot: Slot, machine: Machine) -> float:
    return slot.allocation.cpus / machine.capacity.cpus


def _attempt_cost(world: World, attempt: Attempt, prices: Mapping[str, Sequence[Segment]], now: float) -> int:
    """Return micro-dollars: the whole cost of its own machines, and its share of slots and time of a shared one."""
    total = 0
    for slot in attempt.slots:
        machine = world.machines.get(slot.machine)
        if machine is None or not machine.rate:
            continue
        segments = prices.get(machine.id, ())
        if machine.belongs_to(attempt):
            total += pricing.machine_cost(segments, machine.billing, now)
        else:
            occupied = [Segment(attempt.placed_at, attempt.ended_at, machine.rate)]
            part = _slot_share(slot, machine)
            total += pricing.share(pricing.machine_cost(occupied, machine.billing, now), [part, 1 - part])[0]
    return total
