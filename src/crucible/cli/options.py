"""The options of `crucible run`, which `plan`, `train`, `infer` and `benchmark` take too: each said once, here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from crucible.client.payload import JOB_FILES

Text = str | None
Texts = list[str] | None
"""What a command is given for an option that may be given several times; None: not once."""
Many = tuple[str, ...]
"""The same, once it is read."""


@dataclass(frozen=True)
class Options:
    """A command line of `run`, as it was written."""

    target: Annotated[
        Text, typer.Argument(metavar="[TARGET]", help="Script, directory, notebook, git URL, job file, or -.")
    ] = None
    code: Annotated[Text, typer.Option("--code", "-c", metavar="CODE", help="Run this Python code.")] = None
    shell: Annotated[Text, typer.Option("--shell", metavar="COMMAND", help="Run this command with /bin/sh.")] = None
    template: Annotated[
        Text, typer.Option("--template", metavar="NAME", help="Run a ready workload; see `crucible templates`.")
    ] = None
    entry: Annotated[
        Text, typer.Option("--entry", metavar="FILE", help="File of a directory or repository to run.")
    ] = None
    ref: Annotated[Text, typer.Option("--ref", metavar="REF", help="Branch, tag or commit of a git URL.")] = None
    include: Annotated[
        Many, typer.Option("--include", metavar="PATTERN", help="More files to send: a pattern. Repeatable.")
    ] = ()
    in_place: Annotated[bool, typer.Option("--in-place", help="Run in the folder itself, not a copy.")] = False
    python: Annotated[Text, typer.Option("--python", metavar="PATH", help="Interpreter or virtual environment.")] = None
    env: Annotated[Many, typer.Option("--env", metavar="NAME[=VALUE]", help="A variable of the job. Repeatable.")] = ()
    env_file: Annotated[
        tuple[Path, ...], typer.Option("--env-file", metavar="FILE", help="File of NAME=VALUE lines.")
    ] = ()
    secret: Annotated[
        Many,
        typer.Option("--secret", metavar="[VARIABLE=]NAME", help="A secret of the project, as a variable. Repeatable."),
    ] = ()
    data: Annotated[Many, typer.Option("--data", metavar="[NAME=]PATH", help="Input: a path or URI. Repeatable.")] = ()
    backend: Annotated[
        Text, typer.Option("--backend", metavar="NAME[,NAME…]", help="Where to run, and where to go on from there.")
    ] = None
    fallback: Annotated[
        Many,
        typer.Option("--fallback", metavar="NAME", help="Where to go on when the place has no machine. Repeatable."),
    ] = ()
    market: Annotated[
        Text, typer.Option("--market", metavar="MARKET", help="spot, on_demand or reserved machines.")
    ] = None
    spot: Annotated[bool, typer.Option("--spot", help="The same as --market spot.")] = False
    region: Annotated[Many, typer.Option("--region", metavar="REGION", help="Only there. Repeatable.")] = ()
    tier: Annotated[Text, typer.Option("--tier", metavar="TIER", help="A named size; see `crucible tiers`.")] = None
    gpu: Annotated[
        Many, typer.Option("--gpu", metavar="TYPE", help="Only GPUs of this type, such as T4 or A100. Repeatable.")
    ] = ()
    optimize: Annotated[
        Text, typer.Option("--optimize", metavar="AIM", help="cost (unless given), speed, balanced or deadline.")
    ] = None
    hours: Annotated[
        float | None, typer.Option("--hours", metavar="N", help="How long it takes, if you know; on --gpu, if given.")
    ] = None
    deadline: Annotated[
        Text, typer.Option("--deadline", metavar="TIME", help="Only where it is done within this time, such as 6h.")
    ] = None
    max_cost: Annotated[
        float | None,
        typer.Option(
            "--max-cost",
            metavar="DOLLARS",
            help="Only where it costs no more; ended when spent.",
        ),
    ] = None
    allow: Annotated[
        Many, typer.Option("--allow", metavar="NAME", help="Only these places, in the order of the aim. Repeatable.")
    ] = ()
    dedicated: Annotated[bool, typer.Option("--dedicated", help="Only machines that are nobody else's.")] = False
    cpus: Annotated[float | None, typer.Option("--cpus", metavar="N", help="CPUs, also fractions.")] = None
    memory: Annotated[Text, typer.Option("--memory", metavar="SIZE", help="Memory limit, such as 4G (4 GiB).")] = None
    gpus: Annotated[int | None, typer.Option("--gpus", metavar="N", help="Number of GPUs.")] = None
    gpu_memory: Annotated[
        Text, typer.Option("--gpu-memory", metavar="SIZE", help="Memory of each GPU, such as 16G (16 GiB).")
    ] = None
    time: Annotated[Text, typer.Option("--time", metavar="TIME", help="Time limit, such as 1h30m.")] = None
    retries: Annotated[int | None, typer.Option("--retries", metavar="N", help="Retries after the code failed.")] = None
    retry_wait: Annotated[
        Text, typer.Option("--retry-wait", metavar="TIME", help="Time before a retry; 60s unless given.")
    ] = None
    grace: Annotated[Text, typer.Option("--grace", metavar="TIME", help="Time between TERM and KILL.")] = None
    keep_checkpoints: Annotated[
        int | None, typer.Option("--keep-checkpoints", metavar="N", help="Of the newest so many stay; 3 unless given.")
    ] = None
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="What $CRUCIBLE_SEED says.")] = None
    resume_from: Annotated[
        Text, typer.Option("--resume-from", metavar="ID", help="Start from this checkpoint of any job.")
    ] = None
    name: Annotated[Text, typer.Option("--name", metavar="NAME", help="What to call the job.")] = None
    project: Annotated[Text, typer.Option("--project", metavar="NAME", help="Whose job it is.")] = None
    kind: Annotated[Text, typer.Option("--kind", metavar="KIND", help="train, inference, benchmark or serve.")] = None
    tag: Annotated[Many, typer.Option("--tag", metavar="TAG", help="Label to find it by. Repeatable.")] = ()
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit, print the id, return.")] = False
    notify: Annotated[bool, typer.Option("--notify", help="Ring, and tell the desktop, when it has ended.")] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say where it would run, for how much, and by which call.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Spend without being asked.")] = False
    plan: bool = False
    """As `dry_run`, without the call that would be sent."""
    every_region: bool = False
    limit: int | None = None

    @property
    def names_job_file(self) -> bool:
        return self.target is not None and Path(self.target).suffix in JOB_FILES

    @classmethod
    def of(cls, ctx: typer.Context, **more: Any) -> Options:
        """The command line of this context. Lists that were not given come as None."""
        names = {item.name for item in fields(cls)}
        given = {key: value for key, value in ctx.params.items() if key in names and value is not None}
        lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
        return cls(**{**given, **lists, **more})


def takes_options(verb: Callable[..., int], without: tuple[str, ...] = ()) -> Callable[..., int]:
    """The command with the options of `run`, but for some, after its own. It reads them with `Options.of`."""
    target, *more = (item for item in _parameters() if item.name not in without)
    hints = get_type_hints(verb, include_extras=True)
    ctx, *own = (item.replace(annotation=hints[item.name]) for item in inspect.signature(verb).parameters.values())
    signature = inspect.Signature([ctx, target, *own, *more], return_annotation=int)

    def invoke(ctx: typer.Context, **_: Any) -> int:
        return verb(ctx)

    invoke.__name__, invoke.__doc__ = verb.__name__, verb.__doc__
    invoke.__annotations__ = {name: item.annotation for name, item in signature.parameters.items()}
    vars(invoke)["__signature__"] = signature
    return invoke


def _parameters() -> list[inspect.Parameter]:
    """The options as the library reads them: what may be given several times is a list, and None if it was not."""
    hints = get_type_hints(Options, include_extras=True)
    return [_parameter(name, *get_args(hint)) for name, hint in hints.items() if get_origin(hint) is Annotated]


def _parameter(name: str, kind: Any, option: object) -> inspect.Parameter:
    annotated: Any = Annotated
    listed: Any = list
    several = get_origin(kind) is tuple
    shown = listed[get_args(kind)[0]] | None if several else kind
    default = None if several else getattr(Options, name)
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotated[shown, option]
    )
