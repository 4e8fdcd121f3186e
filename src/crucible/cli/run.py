"""`crucible run`: take up code, submit it, follow it, return its code."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import typer

from crucible.cli.aims import agreed, make_aims
from crucible.cli.follow import DETACHED, submitted, watch
from crucible.cli.hints import hints
from crucible.cli.notice import tell_end
from crucible.cli.options import Options, takes_options
from crucible.cli.results import tell_result
from crucible.cli.session import Session
from crucible.cli.words import command_words, python_words
from crucible.client.api import Api
from crucible.client.inputs import read_data, read_secrets, read_variables
from crucible.client.jobfile import read_job_file
from crucible.client.payload import Payload, Request, from_code, from_shell, make_payload
from crucible.client.placing import any_simulated, read_market, read_names, read_places
from crucible.client.planning import ask_for, followed, look_ahead
from crucible.client.pythons import Surroundings
from crucible.client.submission import submit
from crucible.client.wishes import Wishes
from crucible.core.errors import BadInput, UnknownName
from crucible.core.planrequest import PlanRequest
from crucible.core.resources import parse_duration, parse_memory
from crucible.core.spec import Kind, Source, SourceKind
from crucible.core.tiers import get_tier

_SOUNDS_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY", re.IGNORECASE)
PAYLOADS = ("target", "code", "shell", "template")

T = TypeVar("T")


Take = Callable[[Session, Options, Path], tuple[Payload, Wishes]]
After = Callable[[Api, str], None]


@takes_options
def run(ctx: typer.Context) -> int:
    """Run code as a job, follow it, and return its exit code.

    What stands after -- goes to the code. Ctrl-C detaches; the job goes on.
    """
    session = Session.of(ctx)
    return run_job(session, Options.of(ctx), after=lambda api, job: tell_result(session, api, job))


def run_job(session: Session, options: Options, take: Take | None = None, after: After = lambda api, job: None) -> int:
    """Everything that can be refused is refused before the server is asked, or even started.

    `take` makes code and wishes of the options; `after` is called when a job that was followed has ended.
    """
    with tempfile.TemporaryDirectory(prefix="crucible-") as scratch:
        payload, wishes = (take or take_up)(session, options, Path(scratch))
        wishes = replace(wishes, project=wishes.project or session.settings.project.value)
        ask = ask_for(payload, wishes, make_aims(options))
        if options.dry_run or options.plan:
            return _planned(session, ask, call=options.dry_run)
        with session.api() as api:
            plan = look_ahead(api, ask)
            if plan is not None:
                if not agreed(session, plan, yes=options.yes):
                    return 1
                wishes = followed(plan, wishes)
            job = submit(api, payload, wishes, Path(scratch))
            for note in (*payload.notes, *_plain_secrets(wishes.env)):
                session.out.warn(f"Note: {note}")
            if any_simulated(api, (wishes.backend, *wishes.fallback)):
                job = job.model_copy(update={"simulated": True})
            if options.detach:
                return submitted(session.out, job)
            session.out.say(f"Submitted {job.called}: {_words(payload)}")
            code = watch(session.out, api, job, advise=lambda tail: hints(tail, payload, session.folder))
            if code != DETACHED:
                after(api, job.id)
                if options.notify:
                    tell_end(api.job(job.id), session.environ)
            return code


def _planned(session: Session, ask: PlanRequest, *, call: bool) -> int:
    from crucible.cli.plan import show_plan

    return show_plan(session, ask, call=call)


def _plain_secrets(env: Mapping[str, str]) -> list[str]:
    """A word on variables that look as if they were secrets."""
    names = [name for name, value in env.items() if value and _SOUNDS_SECRET.search(name)]
    return [
        f"{name} is stored with the job as it is. To keep it secret: crucible secrets set {name}, then --secret {name}"
        for name in names
    ]


def take_up(session: Session, options: Options, scratch: Path) -> tuple[Payload, Wishes]:
    """The code and the wishes, from the command line and from a job file if that is what is run."""
    request, wishes = make_request(session, options, scratch), make_wishes(session, options)
    given = [name for name in PAYLOADS if getattr(options, name) is not None]
    if len(given) != 1:
        raise BadInput(
            "Say one thing to run." if given else "There is nothing to run.",
            why="A target, --code, --shell and --template exclude each other." if given else "",
            fix="For example: crucible run train.py -- --epochs 3; another program: crucible run --shell './program'",
        )
    if options.names_job_file:
        return _from_job_file(str(options.target), request, wishes)
    if options.template is not None:
        return from_template(options.template, request), replace(wishes, name=wishes.name or options.template)
    return _payload(given[0], str(getattr(options, given[0])), request), wishes


def make_request(session: Session, options: Options, scratch: Path) -> Request:
    return Request(
        around=Surroundings(session.environ, session.folder),
        scratch=scratch,
        arguments=session.arguments,
        python=options.python,
        include=options.include,
        entry=options.entry,
        ref=options.ref,
        in_place=options.in_place,
        limit=session.settings.bundle_limit.value,
    )


def _from_job_file(target: str, request: Request, wishes: Wishes) -> tuple[Payload, Wishes]:
    found = read_job_file(target, request)
    joined = wishes.over(found.wishes)
    check_tier(joined)
    if found.model is not None:
        return found.taken(None, joined)
    return _payload(found.kind, found.target, found.request), joined


def _payload(kind: str, text: str, request: Request) -> Payload:
    if kind == "shell":
        return from_shell(text, request)
    if kind == "code":
        return from_code(text, request)
    if text == "-":
        code = sys.stdin.buffer.read().decode("utf-8", errors="surrogateescape")
        return from_code(code, request, shown="Standard input")
    return make_payload(text, request)


def from_template(name: str, request: Request) -> Payload:
    """A ready workload, as if its files were in a folder here; without arguments it runs its default size."""
    from crucible.templates import copy_to, get

    template = get(name)
    if request.in_place:
        raise BadInput(
            "A template cannot run in place.",
            why="It would be changed where it is installed.",
            fix=f"Make it yours first: crucible templates copy {name}",
        )
    folder = request.scratch / "template" / name
    copy_to(name, folder)
    arguments = request.arguments or template.command[2:]
    taken = replace(request, arguments=arguments, entry=request.entry or template.entry)
    payload = make_payload(str(folder), taken)
    return replace(payload, source=Source(kind=SourceKind.DIRECTORY, path=str(template.folder)))


def make_wishes(session: Session, options: Options) -> Wishes:
    backend, fallback = read_places(options.backend, options.fallback)
    wishes = Wishes(
        name=options.name,
        project=options.project,
        kind=_kind(options.kind),
        backend=backend,
        fallback=fallback,
        market=read_market(options.market, spot=options.spot),
        regions=read_names(options.region),
        gpu_types=read_names(options.gpu),
        tier=options.tier,
        resources=_resources(options),
        max_cost_usd=options.max_cost,
        env=read_variables(options.env, options.env_file, session.environ),
        secrets=read_secrets(options.secret),
        data=read_data(options.data, session.folder),
        retries=_retries(options),
        keep={} if options.keep_checkpoints is None else {"latest": options.keep_checkpoints},
        seed=options.seed,
        resume_from=options.resume_from,
        grace_seconds=_parsed("--grace", options.grace, parse_duration),
        tags=options.tag,
    )
    check_tier(wishes)
    return wishes


def check_tier(wishes: Wishes) -> None:
    if wishes.tier is not None:
        get_tier(wishes.tier)


def _resources(options: Options) -> dict[str, float | int]:
    said = {
        "cpus": options.cpus,
        "memory_bytes": _parsed("--memory", options.memory, parse_memory),
        "gpus": options.gpus,
        "gpu_memory_bytes": _parsed("--gpu-memory", options.gpu_memory, parse_memory),
        "seconds": _parsed("--time", options.time, parse_duration),
    }
    return {name: value for name, value in said.items() if value is not None}


def _retries(options: Options) -> dict[str, float | int]:
    wait = _parsed("--retry-wait", options.retry_wait, parse_duration)
    said = {"user": options.retries, "wait_seconds": wait}
    return {name: value for name, value in said.items() if value is not None}


def _parsed(flag: str, text: str | None, parse: Callable[[str], T]) -> T | None:
    try:
        return None if text is None else parse(text)
    except BadInput as error:
        raise BadInput(f"{flag}: {error.what}", fix=error.fix, field=flag) from error


def _kind(text: str | None) -> Kind | None:
    if text is None:
        return None
    try:
        return Kind(text.lower())
    except ValueError:
        raise UnknownName("kind of job", text, [kind.value for kind in Kind]) from None


def _words(payload: Payload) -> str:
    return f"{command_words(payload.command)} with {python_words(payload.environment)}"
