"""`crucible run`: take up code, submit it, follow it, return its code."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import typer

from crucible.cli.compute.plan import SHOWN, confirm_cost, show_plan
from crucible.cli.jobs.follow import DETACHED, submitted, watch
from crucible.cli.options.job_options import Options, flag, spelling, takes_options
from crucible.cli.output.desktop_notice import tell_end
from crucible.cli.output.format import command_words, python_words
from crucible.cli.output.hints import hints
from crucible.cli.output.results import tell_result
from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.client.model_plugins import read_inputs
from crucible.client.payload import CodeSource, ModelOptions, Payload, from_code, make_payload
from crucible.client.request.job_file import read_job_file
from crucible.client.request.job_request import ArgumentReader, PartialSpec, make_spec, merge
from crucible.client.request.planning import apply_plan, needs_no_plan, plan_request
from crucible.client.request.pythons import SubmitHost
from crucible.client.request.submission import any_simulated, build_payload, submit
from crucible.core.errors import BadInput
from crucible.core.job.spec import Source, SourceKind
from crucible.core.routing.plan_request import Goal

_SOUNDS_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY", re.IGNORECASE)
PAYLOADS = ("target", "code", "shell", "template")
_SHORT = ("goal", "suite")
"""Options that stand for `--config NAME=VALUE`."""

After = Callable[[Api, str], None]


@takes_options
def run(ctx: typer.Context) -> int:
    """Run code as a job, follow it, and return its exit code.

    What stands after -- goes to the code. Ctrl-C detaches; the job goes on.
    """
    session = Session.of(ctx)
    return run_job(session, Options.of(ctx), after=lambda api, job: tell_result(session, api, job))


def run_job(session: Session, options: Options, after: After = lambda api, job: None) -> int:
    """Everything that can be refused is refused before the server is asked, or even started.

    `after` is called when a job that was followed has ended.
    """
    with tempfile.TemporaryDirectory(prefix="crucible-") as scratch:
        source, fields, goal = read_options(session, options, Path(scratch))
        payload, fields = _taken_up(source, fields)
        fields = merge({"project": session.settings.project.value}, fields)
        spec = make_spec({**fields, **payload.fields()}, _flags(session))
        request = plan_request(spec, payload, goal)
        if options.dry_run or options.plan:
            return show_plan(session, request, call=options.dry_run)
        with session.api() as api:
            if not needs_no_plan(request):
                plan = api.plan(request)
                if not confirm_cost(session, plan, yes=options.yes):
                    return 1
                spec = apply_plan(plan, spec)
            job = submit(api, spec, payload, Path(scratch))
            for note in (*payload.notes, *_plain_secrets(spec.env)):
                session.out.warn(f"Note: {note}")
            if any_simulated(api, (spec.backend, *spec.fallback)):
                job = job.model_copy(update={"simulated": True})
            if options.detach:
                return submitted(session.out, job)
            session.out.say(f"Submitted {job.display_name}: {_words(payload)}")
            code = watch(session.out, api, job, advise=lambda tail: hints(tail, payload, session.folder))
            if code != DETACHED:
                after(api, job.id)
                if options.notify:
                    tell_end(api.job(job.id), session.environ)
            return code


def _plain_secrets(env: Mapping[str, str]) -> list[str]:
    """A word on variables that look as if they were secrets."""
    names = [name for name, value in env.items() if value and _SOUNDS_SECRET.search(name)]
    return [
        f"{name} is stored with the job as it is. To keep it secret: crucible secrets set {name}, then --secret {name}"
        for name in names
    ]


def read_options(session: Session, options: Options, scratch: Path) -> tuple[CodeSource, PartialSpec, Goal]:
    """What to run, the job and the goal, from the command line and from a job file if that is what is run."""
    fields, goal = _flags(session).read({**options.given(), "limit": options.limit or SHOWN})
    source = _code_source(session, options, scratch)
    if options.names_job_file:
        source, below = read_job_file(str(options.target), source)
        fields = merge(below, fields)
    if options.template is not None:
        fields = merge({"name": options.template}, fields)
    return source if source.kind == "model" else _without_model(source, options, session), fields, goal


def _flags(session: Session) -> ArgumentReader:
    return ArgumentReader(spelling(), flag, SubmitHost(session.environ, session.folder))


def _code_source(session: Session, options: Options, scratch: Path) -> CodeSource:
    named = [name for name in (*PAYLOADS, "model") if getattr(options, name) is not None]
    if len(named) != 1:
        raise BadInput(
            "Say one thing to run." if named else "There is nothing to run.",
            why="A target, --code, --shell and --template exclude each other." if named else "",
            fix="For example: crucible run train.py -- --epochs 3; another program: crucible run --shell './program'",
        )
    short = (f"{name}={value}" for name in _SHORT if (value := getattr(options, name)) is not None)
    items, inputs = (*options.config, *short), read_inputs(options.input, session.folder)
    return CodeSource(
        SubmitHost(session.environ, session.folder),
        "path" if named[0] == "target" else named[0],
        getattr(options, named[0]),
        arguments=session.arguments,
        model=ModelOptions(session.folder, {}, items, options.plugin, inputs, options.callback),
        python=options.python,
        include=options.include,
        entry=options.entry,
        ref=options.ref,
        in_place=options.in_place,
        limit=session.settings.bundle_limit.value,
        scratch=scratch,
    )


def _without_model(source: CodeSource, options: Options, session: Session) -> CodeSource:
    """Code gets its inputs as one argument `--input JSON`, before those of the command line."""
    for name in ("config", *_SHORT, "callback", "plugin"):
        if getattr(options, name):
            raise BadInput(
                f"--{name} belongs to a model plugin, and there is no --model.",
                fix="Name the model, or pass what a script takes after --.",
            )
    assert source.model is not None, "made of the options"
    inputs, written = source.model.inputs, len(source.arguments) - len(session.arguments)
    words = () if inputs is None else ("--input", json.dumps(inputs))
    arguments = (*source.arguments[:written], *words, *source.arguments[written:])
    return replace(source, model=None, arguments=arguments)


def _taken_up(source: CodeSource, fields: PartialSpec) -> tuple[Payload, PartialSpec]:
    if source.kind == "path" and source.target == "-":
        code = sys.stdin.buffer.read().decode("utf-8", errors="surrogateescape")
        return from_code(code, source, shown="Standard input"), fields
    return (_from_template(source), fields) if source.kind == "template" else build_payload(source, fields)


def _from_template(source: CodeSource) -> Payload:
    """A ready workload, as if its files were in a folder here; without arguments it runs its default size."""
    from crucible.templates import copy_to, get

    name = str(source.target)
    template = get(name)
    if source.in_place:
        raise BadInput(
            "A template cannot run in place.",
            why="It would be changed where it is installed.",
            fix=f"Make it yours first: crucible templates copy {name}",
        )
    assert source.scratch is not None, "a copy needs a folder"
    folder = source.scratch / "template" / name
    copy_to(name, folder)
    arguments, entry = source.arguments or template.command[2:], source.entry or template.entry
    payload = make_payload(str(folder), replace(source, arguments=arguments, entry=entry))
    return replace(payload, source=Source(kind=SourceKind.DIRECTORY, path=str(template.folder)))


def _words(payload: Payload) -> str:
    return f"{command_words(payload.command)} with {python_words(payload.environment)}"
