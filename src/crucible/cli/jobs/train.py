"""`crucible train`, `infer` and `benchmark`: a model by its name, or a script, as a job of that kind; and `plan`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import typer

from crucible.cli.jobs.run import PAYLOADS, run_job
from crucible.cli.options.job_options import Options, takes_options
from crucible.cli.output.results import show_result
from crucible.cli.session import Session
from crucible.client.request.model_jobs import METHODS
from crucible.core.errors import BadInput
from crucible.core.job.spec import Kind

_MODEL = ("model", "plugin", "config")


@partial(takes_options, without=("kind",), plus=(*_MODEL, "callback", "goal", "capture"))
def train(ctx: typer.Context) -> int:
    """Train a model by its name, or by a script; follow it to its end.

    What stands after -- goes to the script. Ctrl-C detaches; the job goes on.
    """
    return _run(ctx, Kind.TRAIN)


@partial(takes_options, without=("kind",), plus=(*_MODEL, "input"))
def infer(ctx: typer.Context) -> int:
    """Ask a model, or a script, for a prediction; the last line of standard output is the result, as JSON."""
    return _run(ctx, Kind.INFERENCE)


@partial(takes_options, without=("kind",), plus=(*_MODEL, "suite"))
def benchmark(ctx: typer.Context) -> int:
    """Measure a model, or run a script that measures; the last line of standard output is the result, as JSON."""
    return _run(ctx, Kind.BENCHMARK)


def _run(ctx: typer.Context, kind: Kind) -> int:
    options, session = Options.of(ctx, kind=kind.value), Session.of(ctx)
    if options.capture is not None:
        options = replace(options, data=(*options.data, f"capture={options.capture}"))
    code = any(getattr(options, name) is not None for name in PAYLOADS)
    if code and options.model is not None:
        raise BadInput("A model and code to run exclude each other.", fix="Leave out --model, or the code.")
    if not code and options.model is None:
        fix = f"For example: crucible {METHODS[kind]} --model NAME; `crucible models` lists them."
        raise BadInput("There is neither a model nor a script.", fix=fix)
    return run_job(session, options, lambda api, job: show_result(session, api, job))


@partial(takes_options, without=("detach", "notify", "dry_run", "yes"), plus=("every_region", "limit"))
def plan(ctx: typer.Context) -> int:
    """Read a program: what it needs, what all of it costs at each place, and when it would be done. Runs nothing.

    Takes what `run` takes. → is where `run` would go; ○ are places that are not connected.
    """
    return run_job(Session.of(ctx), Options.of(ctx, plan=True))
