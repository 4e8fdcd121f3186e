"""Jobs in words: the few phrases that several commands share."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

from crucible.core.compute.resources import format_duration, format_memory
from crucible.core.job.kinds import PYTHON
from crucible.core.views.jobs import BriefJobView, CostView, EnvironmentView, HealthView, JobView, ProgressView

if TYPE_CHECKING:
    from crucible.core.job.spec import EnvironmentSpec


def progress_words(progress: ProgressView | None) -> str:
    """`epoch 3/10, step 40/100, loss 0.1234, 30%, 2m 10s left`; empty if nothing is known."""
    if progress is None:
        return ""
    parts = [
        _count("epoch", progress.epoch, progress.total_epochs),
        _count("step", progress.step, progress.total_steps),
        f"loss {progress.loss:.4g}" if progress.loss is not None else "",
        f"{progress.fraction:.0%}" if progress.fraction is not None else "",
        f"{format_duration(progress.eta_seconds)} left" if progress.eta_seconds else "",
    ]
    said = ", ".join(part for part in parts if part)
    return said or (progress.message or "")


def cost_words(cost: CostView) -> str:
    """`free`, or dollars with as many digits as matter."""
    if not cost.micros and not cost.rate_micros_per_hour:
        return "free"
    return dollars(cost.micros)


def dollars(micros: int) -> str:
    return f"${micros / 1e6:.2f}" if micros >= 10_000 else f"${micros / 1e6:.4f}"


def price_words(micros: int) -> str:
    """`$0.526`: list prices differ in their third digit."""
    return f"${micros / 1e6:.3f}" if micros >= 10_000 else f"${micros / 1e6:.5f}"


def money_words(job: BriefJobView) -> str:
    """What a job cost, and whether that is play money."""
    words = cost_words(job.cost)
    return f"{words} (simulated)" if job.is_simulated and words != "free" else words


def remaining_words(job: JobView) -> str:
    """`$0.12 to come`, or why nobody can say; empty where nothing is to be paid."""
    cost = job.cost
    if cost.estimated_remaining_micros:
        return f"about {dollars(cost.estimated_remaining_micros)} to come"
    known = cost.estimated_remaining_micros is not None or not cost.remaining_unknown
    return "" if known else f"what is to come is not known: {cost.remaining_unknown}"


def health_words(health: HealthView | None) -> tuple[str, ...]:
    """The verdict and what it rests on, then what to do; nothing where nothing is known."""
    if health is None:
        return ()
    return tuple(text for text in (f"{health.display_name}: {health.message}".rstrip(": "), health.advice) if text)


def place_words(job: JobView) -> str | None:
    """Where it runs and why; None before that is decided."""
    if not job.placement:
        return None
    backend = job.backend or ""
    return job.placement if job.placement.startswith(backend) else f"{backend}: {job.placement}"


def plan_words(job: JobView) -> str | None:
    """`about 7h 15m on T4 at colab, $1.35 in all`, or why no offer could run it; None while it is not planned."""
    if job.plan is None:
        return None
    offer = job.plan.chosen
    if offer is None:
        return job.plan.why
    seconds, total = offer.seconds, offer.total_micros
    cost = "" if total is None else f"{dollars(total)} in all" if total else "free"
    takes = "" if seconds is None else f"about {format_duration(seconds)} "
    return ", ".join(part for part in (f"{takes}on {offer.instance_type} at {offer.backend}", cost) if part)


def command_words(command: Sequence[str], most: int = 100) -> str:
    """The command as one would type it, shortened; code on one line."""
    shown = ["python" if word == PYTHON else word for word in command[:20]]
    if shown[:2] == ["/bin/sh", "-c"] and len(shown) > 2:
        words = " ".join([shown[2], *map(shlex.quote, shown[4:])])
    else:
        words = shlex.join(shown)
    line = " ".join(words.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def name_words(job: BriefJobView) -> str:
    """The name it was given, else what it was made from."""
    if job.name:
        return job.name
    source = job.source
    if source.kind in ("code", "shell"):
        return f"({source.kind})"
    return PurePath(source.path or source.url or "").name.removesuffix(".git")


def python_words(environment: EnvironmentView | EnvironmentSpec) -> str:
    """Which Python, and how it was chosen."""
    origin = environment.origin
    if environment.interpreter:
        return f"{environment.interpreter} ({origin})" if origin else environment.interpreter
    return f"an environment built from {origin}" if origin else "this computer's python3"


def amount_words(name: str, value: float | None) -> str:
    """A metric's value; what is in bytes in units that people read."""
    if value is None:
        return ""
    if name.endswith("_bytes") and value >= 0:
        return format_memory(value)
    return f"{value:.4g}"


def result_words(job: JobView, most: int = 2000) -> str | None:
    """What it found out, as JSON; shortened."""
    if job.result is None:
        return None
    line = json.dumps(job.result.value, ensure_ascii=False)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def end_words(job: JobView) -> str:
    """`job-abc123 failed after 42s (exit code 3)`."""
    seconds = lasted(job)
    after = f" after {format_duration(seconds)}" if seconds is not None else ""
    code = f" (exit code {job.exit_code})" if job.exit_code else ""
    signal = f" (signal {job.signal})" if job.signal else ""
    return f"{job.display_name} {job.status}{after}{code or signal}"


def lasted(job: JobView, now: datetime | None = None) -> float | None:
    """Seconds that the program itself ran; where the server does not say, from start to end, or to now."""
    if job.ran_seconds is not None:
        return job.ran_seconds
    started, ended = _instant(job.started_at), _instant(job.ended_at)
    if started is None:
        return None
    return max(0.0, ((ended or now or datetime.now(UTC)) - started).total_seconds())


def age_words(job: JobView, now: datetime | None = None) -> str:
    return ago_words(job.created_at, now)


def ago_words(text: str | None, now: datetime | None = None) -> str:
    """`3m 20s ago`; empty for no time."""
    then = _instant(text)
    if then is None:
        return ""
    return f"{format_duration(max(0.0, ((now or datetime.now(UTC)) - then).total_seconds()))} ago"


def reason_words(job: JobView) -> tuple[str, ...]:
    """Why it ended so, and what to do about it."""
    if job.reason is None:
        return ()
    return tuple(text for text in (job.reason.message or job.reason.code, job.reason.advice) if text)


def _count(name: str, value: float | None, total: float | None) -> str:
    if value is None:
        return ""
    return f"{name} {value:g}/{total:g}" if total else f"{name} {value:g}"


def _instant(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def unconnected(reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Of places, each with why it is not connected and no full stop: how to connect them, the same said once."""
    found: dict[str, list[str]] = {}
    for name, why in reasons:
        places = found.setdefault(why.replace(name, "{}"), [])
        places += [] if name in places else [name]
    for why, places in found.items():
        said = why if len(places) == 1 else _of_several(why)
        yield f"○ {said.replace('{}', _and(places), 1).replace('{}', ','.join(places))}."


def _of_several(why: str) -> str:
    """The same, said of more than one."""
    return why.replace("{} is ", "{} are ", 1).replace("Connect it:", "Connect them:", 1)


def _and(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
