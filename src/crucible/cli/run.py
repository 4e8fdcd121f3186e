"""`crucible run`: take up code, submit it, follow it, return its code."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from crucible.cli.follow import DETACHED, submitted, watch
from crucible.cli.hints import hints
from crucible.cli.notice import tell_end
from crucible.cli.session import Session
from crucible.cli.words import command_words, python_words
from crucible.client.api import Api
from crucible.client.inputs import read_data, read_secrets, read_variables
from crucible.client.jobfile import read_job_file
from crucible.client.payload import JOB_FILES, Payload, Request, from_code, from_shell, make_payload
from crucible.client.placing import any_simulated, read_market, read_names, read_places
from crucible.client.pythons import Surroundings
from crucible.client.submission import submit
from crucible.client.wishes import Wishes, make_spec
from crucible.core.errors import BadInput, UnknownName
from crucible.core.resources import parse_duration, parse_memory
from crucible.core.spec import JobSpec, Kind, Source, SourceKind
from crucible.core.tiers import get_tier

_SOUNDS_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY", re.IGNORECASE)
PAYLOADS = ("target", "code", "shell", "template")

T = TypeVar("T")
Text = str | None
Texts = list[str] | None


@dataclass(frozen=True)
class Options:
    """The command line of `run`, as it was written."""

    target: str | None = None
    code: str | None = None
    shell: str | None = None
    template: str | None = None
    entry: str | None = None
    ref: str | None = None
    include: tuple[str, ...] = ()
    in_place: bool = False
    python: str | None = None
    env: tuple[str, ...] = ()
    env_file: tuple[Path, ...] = ()
    secret: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    backend: str | None = None
    fallback: tuple[str, ...] = ()
    market: str | None = None
    spot: bool = False
    region: tuple[str, ...] = ()
    tier: str | None = None
    cpus: float | None = None
    memory: str | None = None
    gpus: int | None = None
    gpu_memory: str | None = None
    time: str | None = None
    retries: int | None = None
    retry_wait: str | None = None
    grace: str | None = None
    keep_checkpoints: int | None = None
    seed: int | None = None
    resume_from: str | None = None
    name: str | None = None
    project: str | None = None
    kind: str | None = None
    tag: tuple[str, ...] = ()
    detach: bool = False
    notify: bool = False
    dry_run: bool = False
    plan: bool = False
    """As `dry_run`, without the call that would be sent."""

    @property
    def names_job_file(self) -> bool:
        return self.target is not None and Path(self.target).suffix in JOB_FILES


Take = Callable[[Session, Options, Path], tuple[Payload, Wishes]]
After = Callable[[Api, str], None]


def run(
    ctx: typer.Context,
    target: Annotated[
        Text, typer.Argument(metavar="[TARGET]", help="Script, directory, notebook, git URL, job file, or -.")
    ] = None,
    code: Annotated[Text, typer.Option("--code", "-c", metavar="CODE", help="Run this Python code.")] = None,
    shell: Annotated[Text, typer.Option("--shell", metavar="COMMAND", help="Run this command with /bin/sh.")] = None,
    template: Annotated[
        Text, typer.Option("--template", metavar="NAME", help="Run a ready workload; see `crucible templates`.")
    ] = None,
    entry: Annotated[
        Text, typer.Option("--entry", metavar="FILE", help="File of a directory or repository to run.")
    ] = None,
    ref: Annotated[Text, typer.Option("--ref", metavar="REF", help="Branch, tag or commit of a git URL.")] = None,
    include: Annotated[
        Texts, typer.Option("--include", metavar="PATTERN", help="More files to send: a pattern. Repeatable.")
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Run in the folder itself, not a copy.")] = False,
    python: Annotated[
        Text, typer.Option("--python", metavar="PATH", help="Interpreter or virtual environment.")
    ] = None,
    env: Annotated[
        Texts, typer.Option("--env", metavar="NAME[=VALUE]", help="A variable of the job. Repeatable.")
    ] = None,
    env_file: Annotated[
        list[Path] | None, typer.Option("--env-file", metavar="FILE", help="File of NAME=VALUE lines.")
    ] = None,
    secret: Annotated[
        Texts,
        typer.Option("--secret", metavar="[VARIABLE=]NAME", help="A secret of the project, as a variable. Repeatable."),
    ] = None,
    data: Annotated[
        Texts, typer.Option("--data", metavar="[NAME=]PATH", help="Input: a path or URI. Repeatable.")
    ] = None,
    backend: Annotated[
        Text, typer.Option("--backend", metavar="NAME[,NAME…]", help="Where to run, and where to go on from there.")
    ] = None,
    fallback: Annotated[
        Texts,
        typer.Option("--fallback", metavar="NAME", help="Where to go on when the place has no machine. Repeatable."),
    ] = None,
    market: Annotated[
        Text, typer.Option("--market", metavar="MARKET", help="spot, on_demand or reserved machines.")
    ] = None,
    spot: Annotated[bool, typer.Option("--spot", help="The same as --market spot.")] = False,
    region: Annotated[Texts, typer.Option("--region", metavar="REGION", help="Only there. Repeatable.")] = None,
    tier: Annotated[Text, typer.Option("--tier", metavar="TIER", help="A named size; see `crucible tiers`.")] = None,
    cpus: Annotated[float | None, typer.Option("--cpus", metavar="N", help="CPUs, also fractions.")] = None,
    memory: Annotated[Text, typer.Option("--memory", metavar="SIZE", help="Memory limit, such as 4G (4 GiB).")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", metavar="N", help="Number of GPUs.")] = None,
    gpu_memory: Annotated[
        Text, typer.Option("--gpu-memory", metavar="SIZE", help="Memory of each GPU, such as 16G (16 GiB).")
    ] = None,
    time: Annotated[Text, typer.Option("--time", metavar="TIME", help="Time limit, such as 1h30m.")] = None,
    retries: Annotated[
        int | None, typer.Option("--retries", metavar="N", help="Retries after the code failed.")
    ] = None,
    retry_wait: Annotated[
        Text, typer.Option("--retry-wait", metavar="TIME", help="Time before a retry; 60s unless given.")
    ] = None,
    grace: Annotated[Text, typer.Option("--grace", metavar="TIME", help="Time between TERM and KILL.")] = None,
    keep_checkpoints: Annotated[
        int | None, typer.Option("--keep-checkpoints", metavar="N", help="Of the newest so many stay; 3 unless given.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="What $CRUCIBLE_SEED says.")] = None,
    resume_from: Annotated[
        str | None, typer.Option("--resume-from", metavar="ID", help="Start from this checkpoint of any job.")
    ] = None,
    name: Annotated[Text, typer.Option("--name", metavar="NAME", help="What to call the job.")] = None,
    project: Annotated[Text, typer.Option("--project", metavar="NAME", help="Whose job it is.")] = None,
    kind: Annotated[Text, typer.Option("--kind", metavar="KIND", help="train, inference, benchmark or serve.")] = None,
    tag: Annotated[Texts, typer.Option("--tag", metavar="TAG", help="Label to find it by. Repeatable.")] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit, print the id, return.")] = False,
    notify: Annotated[bool, typer.Option("--notify", help="Ring, and tell the desktop, when it has ended.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say where it would run, for how much, and by which call.")
    ] = False,
) -> int:
    """Run code as a job, follow it, and return its exit code.

    What stands after -- goes to the code. Ctrl-C detaches; the job goes on.
    """
    return run_job(Session.of(ctx), options_of(ctx))


def options_of(ctx: typer.Context, **more: Any) -> Options:
    """The command line, as it was written. Lists that were not given come as None."""
    given: dict[str, Any] = {key: value for key, value in ctx.params.items() if value is not None}
    lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
    return Options(**{**given, **lists, **more})


def run_job(session: Session, options: Options, take: Take | None = None, after: After = lambda api, job: None) -> int:
    """Everything that can be refused is refused before the server is asked, or even started.

    `take` makes code and wishes of the options; `after` is called when a job that was followed has ended.
    """
    with tempfile.TemporaryDirectory(prefix="crucible-") as scratch:
        payload, wishes = (take or take_up)(session, options, Path(scratch))
        wishes = replace(wishes, project=wishes.project or session.settings.project.value)
        spec = make_spec(payload, wishes, bundle=None)
        if options.dry_run or options.plan:
            return _planned(session, spec, call=options.dry_run)
        with session.api() as api:
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


def _planned(session: Session, spec: JobSpec, *, call: bool) -> int:
    from crucible.cli.plan import show_plan

    return show_plan(session, spec, call=call)


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
            fix="For example: crucible run train.py -- --epochs 3",
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
        tier=options.tier,
        resources=_resources(options),
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
