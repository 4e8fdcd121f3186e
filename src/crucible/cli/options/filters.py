"""Options that select jobs, the same for every command."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from crucible.core.compute.resources import parse_duration
from crucible.core.errors import BadInput
from crucible.core.patterns import broken_rule

if TYPE_CHECKING:
    from crucible.core.job.job_filter import JobFilter

Texts = list[str] | None

Status = Annotated[Texts, typer.Option("--status", metavar="STATUS", help="Only jobs with this status. Repeatable.")]
Active = Annotated[bool, typer.Option("--active", help="Only jobs that have not ended.")]
Backend = Annotated[Texts, typer.Option("--backend", metavar="NAME", help="Only jobs on this backend. Repeatable.")]
Kind = Annotated[Texts, typer.Option("--kind", metavar="KIND", help="Only jobs of this kind. Repeatable.")]
Project = Annotated[Texts, typer.Option("--project", metavar="PROJECT", help="Only jobs of this project. Repeatable.")]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Only jobs whose name contains this; NAME* matches the start."),
]
Tag = Annotated[
    Texts,
    typer.Option("--tag", metavar="TAG", help="Only jobs with this tag, KEY or KEY=VALUE. Repeatable; all must match."),
]
Text = Annotated[
    str | None, typer.Option("--text", metavar="TEXT", help="Only jobs with this text in name, command or source.")
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only jobs submitted since then, such as 2h or 2026-11-15."),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only jobs submitted before then, such as 2h or 2026-11-15."),
]

_FIELDS = ("status", "active", "backend", "kind", "project", "name", "tag", "text")
_ABSENT: tuple[object, ...] = (None, False, [], ())


def read_filter(options: dict[str, Any], now: datetime | None = None) -> JobFilter:
    """Build the filter from a command's options by name. Raises BadInput or UnknownName."""
    from crucible.core.job.job_filter import JobFilter  # `status` imports this module with `jobs` but filters nothing

    present = now or datetime.now(UTC)
    values: dict[str, Any] = {name: options[name] for name in _FIELDS if options.get(name) not in _ABSENT}
    for option, name in (("since", "created_after"), ("until", "created_before")):
        if options.get(option) is not None:
            values[name] = parse_time(f"--{option}", options[option], present)
    try:
        job_filter = JobFilter.model_validate(values)
    except ValidationError as error:
        raise _bad_filter(error.errors()) from error
    job_filter.states(), job_filter.kinds(), job_filter.tags
    return job_filter


def parse_time(option: str, text: str, now: datetime) -> datetime:
    """Read an age (`2h`, `1d12h`), or an ISO 8601 date or time (default zone: local). Raises BadInput."""
    try:
        return now - timedelta(seconds=parse_duration(text))
    except BadInput:
        pass
    try:
        time = datetime.fromisoformat(text)
        return time if time.tzinfo else time.astimezone()
    except (ValueError, OverflowError):
        raise BadInput(
            f"{option} {text!r} is not a time.", fix="Give an age (30m, 2h, 7d) or a date (2026-11-15T10:00)."
        ) from None


def _bad_filter(errors: Sequence[Any]) -> BadInput:
    name = str(errors[0]["loc"][0])
    rule = broken_rule(errors[0])
    what = f"--{name} {rule}." if rule else f"--{name} is invalid: {errors[0]['msg']}."
    return BadInput(what, fix=f"Give another --{name}.", field=f"--{name}")
