"""`crucible run`, `train`, `infer`, `benchmark` and `plan`: read code, plan it, submit it, follow it."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import typer

from crucible.cli.compute.plan import SHOWN, confirm_cost, format_sent, show_plan
from crucible.cli.context import CommandContext
from crucible.cli.jobs.follow import DETACHED, follow_to_end, print_submitted
from crucible.cli.options.job_options import RunOptions, flag_name, option_fills, takes_options
from crucible.cli.output.desktop_notice import notify_desktop
from crucible.cli.output.format import format_command, format_python
from crucible.cli.output.hints import find_hints
from crucible.cli.output.output import Output
from crucible.client.api import Api
from crucible.client.model_plugins import read_inputs
from crucible.client.payload import CodeSource, ModelOptions, Payload, from_code, make_payload
from crucible.client.request.job_file import read_job_file
from crucible.client.request.job_request import ArgumentReader, PartialSpec, make_spec, merge
from crucible.client.request.model_jobs import METHODS
from crucible.client.request.planning import apply_plan, needs_no_plan, plan_request
from crucible.client.request.pythons import SubmitHost
from crucible.client.request.submission import any_simulated, build_payload, submit
from crucible.core.errors import BadInput
from crucible.core.job.spec import Kind, Source, SourceKind
from crucible.core.routing.plan_request import Goal
from crucible.core.views.jobs import JobView, ResultView

_LOOKS_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY", re.IGNORECASE)
PAYLOADS = ("target", "code", "shell", "template")
_SHORT = ("goal", "suite")
"""Options that are short for `--config NAME=VALUE`."""

After = Callable[[Api, str], None]


@takes_options
def run(ctx: typer.Context) -> int:
    """Run code as a job, follow it, and return its exit code.

    Arguments after -- go to the code. Ctrl-C detaches; the job continues.
    """
    cli = CommandContext.from_typer(ctx)
    return run_job(cli, RunOptions.from_typer(ctx), after=lambda api, job: print_result(cli, api, job))


def run_job(cli: CommandContext, options: RunOptions, after: After = lambda api, job: None) -> int:
    """Submit a job and follow it; return its exit code. `after` is called when the followed job has ended.

    Whatever can be checked here is checked before the server is contacted, or even started.
    """
    with tempfile.TemporaryDirectory(prefix="crucible-") as scratch:
        source, fields, goal = read_options(cli, options, Path(scratch))
        payload, fields = _make_payload(source, fields)
        fields = merge({"project": cli.settings.project.value}, fields)
        spec = make_spec({**fields, **payload.fields()}, _flags(cli))
        request = plan_request(spec, payload, goal)
        if options.dry_run:
            return show_plan(cli, request, payload)
        if options.plan:
            return show_plan(cli, request)
        _print_left_out(cli.out, payload)
        with cli.api() as api:
            if not needs_no_plan(request):
                plan = api.plan(request)
                if not confirm_cost(cli, plan, request, yes=options.yes):
                    return 1
                spec = apply_plan(plan, spec)
            job = submit(api, spec, payload, Path(scratch))
            for note in (*payload.notes, *_find_plain_secrets(spec.env)):
                cli.out.warn(f"Note: {note}")
            if any_simulated(api, (spec.backend, *spec.fallback)):
                job = job.model_copy(update={"simulated": True})
            if options.detach:
                return print_submitted(cli.out, job)
            cli.out.say(f"Submitted {job.display_name}: {_format_payload(payload)}")
            if payload.sent:
                cli.out.say(f"Sent {format_sent(payload)}")
            code = follow_to_end(cli.out, api, job, advise=lambda tail: find_hints(tail, payload, cli.folder))
            if code != DETACHED:
                after(api, job.id)
                if options.notify:
                    notify_desktop(api.job(job.id), cli.environ)
            return code


def _print_left_out(out: Output, payload: Payload) -> None:
    """Print what is not sent although the program might need it: before anything is submitted."""
    for text in payload.left_out:
        out.warn(f"Note: {text}")


def _find_plain_secrets(env: Mapping[str, str]) -> list[str]:
    """Return a note for each variable whose name looks like a secret's."""
    names = [name for name, value in env.items() if value and _LOOKS_SECRET.search(name)]
    return [
        f"{name} is stored with the job in clear. To keep it secret: crucible secrets set {name}, then --secret {name}"
        for name in names
    ]


def read_options(cli: CommandContext, options: RunOptions, scratch: Path) -> tuple[CodeSource, PartialSpec, Goal]:
    """Return what to run, the job's fields and the goal, from the command line and the job file, if any."""
    fields, goal = _flags(cli).read({**options.values(), "limit": options.limit or SHOWN})
    source = _code_source(cli, options, scratch)
    if options.names_job_file:
        source, below = read_job_file(str(options.target), source)
        fields = merge(below, fields)
    if options.template is not None:
        fields = merge({"name": options.template}, fields)
    return source if source.kind == "model" else _without_model(source, options, cli), fields, goal


def _flags(cli: CommandContext) -> ArgumentReader:
    return ArgumentReader(option_fills(), flag_name, SubmitHost(cli.environ, cli.folder))


def _code_source(cli: CommandContext, options: RunOptions, scratch: Path) -> CodeSource:
    named = [name for name in (*PAYLOADS, "model") if getattr(options, name) is not None]
    if len(named) != 1:
        raise BadInput(
            "Only one thing can be run." if named else "There is nothing to run.",
            why="A target, --code, --shell and --template exclude each other." if named else "",
            fix="For example: crucible run train.py -- --epochs 3, or any program: crucible run --shell './program'",
        )
    short = (f"{name}={value}" for name in _SHORT if (value := getattr(options, name)) is not None)
    items, inputs = (*options.config, *short), read_inputs(options.input, cli.folder)
    return CodeSource(
        SubmitHost(cli.environ, cli.folder),
        "path" if named[0] == "target" else named[0],
        getattr(options, named[0]),
        arguments=cli.arguments,
        model=ModelOptions(cli.folder, {}, items, options.plugin, inputs, options.callback),
        python=options.python,
        include=options.include,
        entry=options.entry,
        ref=options.ref,
        in_place=options.in_place,
        limit=cli.settings.bundle_limit.value,
        scratch=scratch,
    )


def _without_model(source: CodeSource, options: RunOptions, cli: CommandContext) -> CodeSource:
    """Return a source of code: inputs become one argument `--input JSON`, before the user's own arguments."""
    for name in ("config", *_SHORT, "callback", "plugin"):
        if getattr(options, name):
            raise BadInput(
                f"--{name} needs --model.",
                fix="Add --model, or pass a script's own arguments after --.",
            )
    assert source.model is not None, "made of the options"
    inputs, written = source.model.inputs, len(source.arguments) - len(cli.arguments)
    words = () if inputs is None else ("--input", json.dumps(inputs))
    arguments = (*source.arguments[:written], *words, *source.arguments[written:])
    return replace(source, model=None, arguments=arguments)


def _make_payload(source: CodeSource, fields: PartialSpec) -> tuple[Payload, PartialSpec]:
    if source.kind == "path" and source.target == "-":
        code = sys.stdin.buffer.read().decode("utf-8", errors="surrogateescape")
        return from_code(code, source, label="Standard input"), fields
    return (_from_template(source), fields) if source.kind == "template" else build_payload(source, fields)


def _from_template(source: CodeSource) -> Payload:
    """Copy a template to the scratch folder and make a payload of it; without arguments it runs its default preset."""
    from crucible.templates import copy_to, get

    name = str(source.target)
    template = get(name)
    if source.in_place:
        raise BadInput(
            "A template cannot run in place.",
            why="It would be modified where it is installed.",
            fix=f"Copy it first: crucible templates copy {name}",
        )
    assert source.scratch is not None, "a copy needs a folder"
    folder = source.scratch / "template" / name
    copy_to(name, folder)
    arguments, entry = source.arguments or template.command[2:], source.entry or template.entry
    payload = make_payload(str(folder), replace(source, arguments=arguments, entry=entry))
    return replace(payload, source=Source(kind=SourceKind.DIRECTORY, path=str(template.folder)))


def _format_payload(payload: Payload) -> str:
    return f"{format_command(payload.command)} with {format_python(payload.environment)}"


_MODEL = ("model", "plugin", "config")


@partial(takes_options, without=("kind",), plus=(*_MODEL, "callback", "goal", "capture"))
def train(ctx: typer.Context) -> int:
    """Train a model, by name or with a script, and follow the job to its end.

    Arguments after -- go to the script. Ctrl-C detaches; the job continues.
    """
    return _run_kind(ctx, Kind.TRAIN)


@partial(takes_options, without=("kind",), plus=(*_MODEL, "input"))
def infer(ctx: typer.Context) -> int:
    """Get predictions from a model or a script; the last line of standard output is the result as JSON."""
    return _run_kind(ctx, Kind.INFERENCE)


@partial(takes_options, without=("kind",), plus=(*_MODEL, "suite"))
def benchmark(ctx: typer.Context) -> int:
    """Benchmark a model, by name or with a script; the last line of standard output is the result as JSON."""
    return _run_kind(ctx, Kind.BENCHMARK)


def _run_kind(ctx: typer.Context, kind: Kind) -> int:
    options, cli = RunOptions.from_typer(ctx, kind=kind.value), CommandContext.from_typer(ctx)
    if options.capture is not None:
        options = replace(options, data=(*options.data, f"capture={options.capture}"))
    code = any(getattr(options, name) is not None for name in PAYLOADS)
    if code and options.model is not None:
        raise BadInput("--model and code to run exclude each other.", fix="Leave out --model or the code.")
    if not code and options.model is None:
        fix = f"For example: crucible {METHODS[kind]} --model NAME; `crucible models` lists them."
        raise BadInput("There is nothing to run: no model and no script.", fix=fix)
    return run_job(cli, options, lambda api, job: print_result_as_data(cli, api, job))


@partial(takes_options, without=("detach", "notify", "dry_run", "yes"), plus=("every_region", "limit"))
def plan(ctx: typer.Context) -> int:
    """Show what a program needs, where it could run, what it would cost and how long it would take. Runs nothing.

    Takes the options of `run`. → marks the offer `run` would use, ○ backends that are not connected.
    """
    return run_job(CommandContext.from_typer(ctx), RunOptions.from_typer(ctx, plan=True))


def print_result(cli: CommandContext, api: Api, job: str) -> None:
    """Print the result, if any, to standard error: standard output belongs to the program."""
    if not cli.out.as_json:
        _say_result(cli.out, api.job(job))


def print_result_as_data(cli: CommandContext, api: Api, job: str) -> None:
    """Print the result of an inference or benchmark as data, or that there is none; a training's as `run` does."""
    if cli.out.as_json:
        return
    view = api.job(job)
    if view.kind == Kind.TRAIN.value:
        _say_result(cli.out, view)
    elif view.result is not None:
        cli.out.data(_as_json(view.result))
    elif view.status == "completed":
        cli.out.warn("The job returned no result. A script returns one with crucible.result(value).")


def _say_result(out: Output, job: JobView) -> None:
    if job.result is not None:
        out.say(f"  Result: {_as_json(job.result)}")


def _as_json(result: ResultView) -> str:
    return json.dumps(result.value, ensure_ascii=False)
