"""`crucible health`: a job's health, with evidence and advice."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Job
from crucible.cli.output.format import format_metric
from crucible.cli.output.output import Output
from crucible.client.sdk.job_lookup import find_job
from crucible.core.views.jobs import FindingView, HealthView


def health(
    ctx: typer.Context,
    job: Job,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if something is wrong.")] = False,
) -> None:
    """Show a job's health, with causes and advice."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        one = find_job(api, job)
        view = api.health(one.id)
    if cli.out.as_json:
        cli.out.json({"job": one.id, **view.as_json()})
    elif cli.out.quiet:
        cli.out.data(view.verdict)
    else:
        _show(cli.out, one.display_name, view)
    if strict and view.level != "good":
        raise typer.Exit(1)


def _show(out: Output, job: str, view: HealthView) -> None:
    out.data(f"{job}: {view.display_name}")
    for finding in view.findings:
        out.fields(
            [
                (finding.level.capitalize(), finding.message),
                ("Evidence", _evidence(finding)),
                ("Advice", finding.advice),
            ]
        )


def _evidence(finding: FindingView) -> str:
    where = [finding.series or "", f"step {finding.step:g}" if finding.step is not None else ""]
    numbers = [f"{name}={format_metric(name, value)}" for name, value in finding.evidence.items() if value is not None]
    return ", ".join(part for part in (*where, *numbers) if part)
