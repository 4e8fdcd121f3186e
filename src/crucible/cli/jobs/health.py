"""`crucible health`: how a job does, what that rests on, and what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.options.arguments import Job
from crucible.cli.output.format import amount_words
from crucible.cli.output.output import Output
from crucible.cli.session import Session
from crucible.client.sdk.job_lookup import find_job
from crucible.core.views.jobs import FindingView, HealthView


def health(
    ctx: typer.Context,
    job: Job,
    strict: Annotated[bool, typer.Option("--strict", help="Return 1 when something is wrong.")] = False,
) -> None:
    """Say how a job does, why, and what to do."""
    session = Session.of(ctx)
    with session.api() as api:
        one = find_job(api, job)
        found = api.health(one.id)
    if session.out.as_json:
        session.out.json({"job": one.id, **found.as_json()})
    elif session.out.quiet:
        session.out.data(found.verdict)
    else:
        _show(session.out, one.display_name, found)
    if strict and found.level != "good":
        raise typer.Exit(1)


def _show(out: Output, called: str, found: HealthView) -> None:
    out.data(f"{called}: {found.display_name}")
    for finding in found.findings:
        out.fields(
            [
                (finding.level.capitalize(), finding.message),
                ("Evidence", _evidence(finding)),
                ("Advice", finding.advice),
            ]
        )


def _evidence(finding: FindingView) -> str:
    where = [finding.series or "", f"step {finding.step:g}" if finding.step is not None else ""]
    numbers = [f"{name}={amount_words(name, value)}" for name, value in finding.evidence.items() if value is not None]
    return ", ".join(part for part in (*where, *numbers) if part)
