"""Formatting of jobs, costs and times, shared by several commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

from crucible.core.compute.resources import format_duration, format_memory
from crucible.core.job.spec import PYTHON
from crucible.core.views.jobs import BriefJobView, CostView, EnvironmentView, HealthView, JobView, ProgressView

if TYPE_CHECKING:
    from crucible.core.job.spec import EnvironmentSpec


def format_progress(progress: ProgressView | None) -> str:
    """Return `epoch 3/10, step 40/100, loss 0.1234, 30%, 2m 10s left`; empty if nothing is known."""
    if progress is None:
        return ""
    parts = [
        _format_count("epoch", progress.epoch, progress.total_epochs),
        _format_count("step", progress.step, progress.total_steps),
        f"loss {progress.loss:.4g}" if progress.loss is not None else "",
        f"{progress.fraction:.0%}" if progress.fraction is not None else "",
        f"{format_duration(progress.eta_seconds)} left" if progress.eta_seconds else "",
    ]
    text = ", ".join(part for part in parts if part)
    return text or (progress.message or "")


def format_cost(cost: CostView) -> str:
    """Return `free`, or dollars with as many digits as matter."""
    if not cost.micros and not cost.rate_micros_per_hour:
        return "free"
    return format_dollars(cost.micros)


def format_dollars(micros: int) -> str:
    return f"${micros / 1e6:.2f}" if micros >= 10_000 else f"${micros / 1e6:.4f}"


def format_price(micros: int) -> str:
    """Return `$0.526`: list prices differ in their third digit."""
    return f"${micros / 1e6:.3f}" if micros >= 10_000 else f"${micros / 1e6:.5f}"


def format_job_cost(job: BriefJobView) -> str:
    """Return what a job has cost, marked if its backend is simulated."""
    words = format_cost(job.cost)
    return f"{words} (simulated)" if job.is_simulated and words != "free" else words


def format_remaining_cost(job: JobView) -> str:
    """Return the estimated remaining cost, or why there is no estimate; empty where nothing is to be paid."""
    cost = job.cost
    if cost.estimated_remaining_micros:
        return f"about {format_dollars(cost.estimated_remaining_micros)} remaining"
    known = cost.estimated_remaining_micros is not None or not cost.remaining_unknown
    return "" if known else f"remaining cost unknown: {cost.remaining_unknown}"


def format_health(health: HealthView | None) -> tuple[str, ...]:
    """Return the verdict with its cause, then the advice; empty if the health is unknown."""
    if health is None:
        return ()
    return tuple(text for text in (f"{health.display_name}: {health.message}".rstrip(": "), health.advice) if text)


def format_placement(job: JobView) -> str | None:
    """Return where the job runs and why; None before that is decided."""
    if not job.placement:
        return None
    backend = job.backend or ""
    return job.placement if job.placement.startswith(backend) else f"{backend}: {job.placement}"


def format_plan(job: JobView) -> str | None:
    """Return `about 7h 15m on T4 (colab), $1.35 in all`, or why no offer fits; None for a job without a plan."""
    if job.plan is None:
        return None
    offer = job.plan.chosen
    if offer is None:
        return job.plan.why
    seconds, total = offer.seconds, offer.total_micros
    cost = "" if total is None else f"{format_dollars(total)} in all" if total else "free"
    takes = "" if seconds is None else f"about {format_duration(seconds)} "
    later = job.plan.fallback.total_micros if job.plan.fallback else None
    instead = "" if later is None else f"or {format_dollars(later)} on demand"
    return ", ".join(part for part in (f"{takes}on {offer.instance_type} ({offer.backend})", cost, instead) if part)


def format_command(command: Sequence[str], most: int = 100) -> str:
    """Return the command as typed in a shell, shortened; code on one line."""
    parts = ["python" if word == PYTHON else word for word in command[:20]]
    if parts[:2] == ["/bin/sh", "-c"] and len(parts) > 2:
        words = " ".join([parts[2], *map(shlex.quote, parts[4:])])
    else:
        words = shlex.join(parts)
    line = " ".join(words.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def format_name(job: BriefJobView) -> str:
    """Return the job's name, else the file, repository or kind of its source."""
    if job.name:
        return job.name
    source = job.source
    if source.kind in ("code", "shell"):
        return f"({source.kind})"
    return PurePath(source.path or source.url or "").name.removesuffix(".git")


def format_python(environment: EnvironmentView | EnvironmentSpec) -> str:
    """Return which Python the job uses and how it was chosen."""
    origin = environment.origin
    if environment.interpreter:
        return f"{environment.interpreter} ({origin})" if origin else environment.interpreter
    return f"an environment built from {origin}" if origin else "this computer's python3"


def format_metric(name: str, value: float | None) -> str:
    """Return a metric's value; bytes in readable units."""
    if value is None:
        return ""
    if name.endswith("_bytes") and value >= 0:
        return format_memory(value)
    return f"{value:.4g}"


def format_result(job: JobView, most: int = 2000) -> str | None:
    """Return the job's result as JSON, shortened; None without one."""
    if job.result is None:
        return None
    line = json.dumps(job.result.value, ensure_ascii=False)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def format_end(job: JobView) -> str:
    """Return `job-abc123 failed after 42s (exit code 3)`."""
    seconds = run_seconds(job)
    after = f" after {format_duration(seconds)}" if seconds is not None else ""
    code = f" (exit code {job.exit_code})" if job.exit_code else ""
    signal = f" (signal {job.signal})" if job.signal else ""
    return f"{job.display_name} {job.status}{after}{code or signal}"


def run_seconds(job: JobView, now: datetime | None = None) -> float | None:
    """Return how long the program ran: the server's value, else from start to end or now."""
    if job.ran_seconds is not None:
        return job.ran_seconds
    started, ended = _parse_time(job.started_at), _parse_time(job.ended_at)
    if started is None:
        return None
    return max(0.0, ((ended or now or datetime.now(UTC)) - started).total_seconds())


def format_age(job: JobView, now: datetime | None = None) -> str:
    return format_ago(job.created_at, now)


def format_ago(text: str | None, now: datetime | None = None) -> str:
    """Return `3m 20s ago`; empty for no time."""
    then = _parse_time(text)
    if then is None:
        return ""
    return f"{format_duration(max(0.0, ((now or datetime.now(UTC)) - then).total_seconds()))} ago"


def format_reason(job: JobView) -> tuple[str, ...]:
    """Return why the job ended as it did, then the advice."""
    if job.reason is None:
        return ()
    return tuple(text for text in (job.reason.message or job.reason.code, job.reason.advice) if text)


def _format_count(name: str, value: float | None, total: float | None) -> str:
    if value is None:
        return ""
    return f"{name} {value:g}/{total:g}" if total else f"{name} {value:g}"


def _parse_time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def format_unconnected(reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield how to connect these backends, one line per reason.

    `reasons` are pairs of a backend's name and why it is not connected.
    """
    by_reason: dict[str, list[str]] = {}
    for name, why in reasons:
        names = by_reason.setdefault(why.removesuffix(".").replace(name, "{}"), [])
        names += [] if name in names else [name]
    for why, names in by_reason.items():
        text = why if len(names) == 1 else _plural(why)
        yield f"○ {text.replace('{}', _join_names(names), 1).replace('{}', 'NAME' if names[1:] else names[0])}."


def _plural(why: str) -> str:
    """Return a reason in the plural."""
    return why.replace("{} is ", "{} are ", 1).replace("Connect it:", "Connect one:", 1)


def _join_names(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
