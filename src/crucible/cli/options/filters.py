"""Options that say which jobs are meant, the same for every command that takes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from crucible.core.compute.resources import parse_duration
from crucible.core.errors import BadInput

if TYPE_CHECKING:
    from crucible.core.job.job_filter import JobFilter

Texts = list[str] | None

Status = Annotated[Texts, typer.Option("--status", metavar="STATUS", help="Only these. Repeatable.")]
Active = Annotated[bool, typer.Option("--active", help="Only those that have not ended.")]
Backend = Annotated[Texts, typer.Option("--backend", metavar="NAME", help="Only those at this place. Repeatable.")]
Kind = Annotated[Texts, typer.Option("--kind", metavar="KIND", help="Only of this kind. Repeatable.")]
Project = Annotated[Texts, typer.Option("--project", metavar="PROJECT", help="Only of this project. Repeatable.")]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="A part of the name; NAME* begins so.")]
Tag = Annotated[Texts, typer.Option("--tag", metavar="TAG", help="With this key or key=value. Repeatable: all.")]
Text = Annotated[str | None, typer.Option("--text", metavar="TEXT", help="In name, command or source.")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Submitted since: 2h, or 2026-11-15.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Submitted before: 2h ago, or a date.")]

_FIELDS = ("status", "active", "backend", "kind", "project", "name", "tag", "text")
_NOT_GIVEN: tuple[object, ...] = (None, False, [], ())


def read_filter(given: dict[str, Any], now: datetime | None = None) -> JobFilter:
    """From a command's options by their names, `since` and `until` among them. Raises BadInput, UnknownName."""
    from crucible.core.job.job_filter import JobFilter  # `status` shares this module with `jobs`, and filters nothing

    present = now or datetime.now(UTC)
    said: dict[str, Any] = {name: given[name] for name in _FIELDS if given.get(name) not in _NOT_GIVEN}
    for option, name in (("since", "created_after"), ("until", "created_before")):
        if given.get(option) is not None:
            said[name] = moment(f"--{option}", given[option], present)
    try:
        wanted = JobFilter.model_validate(said)
    except ValidationError as error:
        raise _bad(error.errors()) from error
    wanted.states(), wanted.kinds(), wanted.tags
    return wanted


def moment(option: str, text: str, now: datetime) -> datetime:
    """A time so long ago (`2h`, `1d12h`), or a date or time as ISO 8601 writes it, of this computer's zone."""
    try:
        return now - timedelta(seconds=parse_duration(text))
    except BadInput:
        pass
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.astimezone()
    except (ValueError, OverflowError):
        raise BadInput(
            f"{option} {text!r} is no time.", fix="Write how long ago (30m, 2h, 7d) or a date: 2026-11-15T10:00"
        ) from None


def _bad(errors: Sequence[Any]) -> BadInput:
    name = str(errors[0]["loc"][0])
    return BadInput(f"--{name} is not right: {errors[0]['msg']}.", fix=f"Give another --{name}.", field=f"--{name}")
