"""The options of `crucible run`, which `plan`, `train`, `infer` and `benchmark` take too.

Each is declared once: how it is written, its help, and with `Fills` the field of the job or of the goal that it fills,
unless it is spelt like that field or fills none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from crucible.client.payload import JOB_FILES
from crucible.client.request.job_request import (
    DURATION,
    KIND,
    MARKET,
    MEMORY,
    FieldMapping,
    parse_data,
    parse_env_files,
    parse_names,
    parse_secrets,
    parse_variables,
    text_parser,
)
from crucible.client.request.parse import read_objective
from crucible.core.compute.offers import Market
from crucible.core.compute.resources import parse_duration

HOURS = text_parser(lambda text: parse_duration(text) / 3600)
OBJECTIVE = text_parser(read_objective)
SPOT = text_parser(lambda _: Market.SPOT)

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
    model: Annotated[Text, typer.Option("--model", metavar="NAME", help="A model plugin; see `crucible models`.")] = (
        None
    )
    plugin: Annotated[
        Text,
        typer.Option("--plugin", metavar="DIR|REQUIREMENT", help="Where the model comes from, if not installed here."),
    ] = None
    config: Annotated[
        Many, typer.Option("--config", metavar="FILE|KEY=VALUE", help="Options of the model. Repeatable.")
    ] = ()
    callback: Annotated[
        Many, typer.Option("--callback", metavar="MODULE:CLASS", help="A callback of your own. Repeatable.")
    ] = ()
    goal: Annotated[Text, typer.Option("--goal", metavar="TEXT", help="The same as --config goal=TEXT.")] = None
    suite: Annotated[Text, typer.Option("--suite", metavar="NAME", help="The same as --config suite=NAME.")] = None
    input: Annotated[
        Many, typer.Option("--input", metavar="JSON|TEXT|@FILE", help="What to predict from. Repeatable.")
    ] = ()
    capture: Annotated[
        Text, typer.Option("--capture", metavar="DIR", help="A recording: the same as --data capture=DIR.")
    ] = None
    every_region: Annotated[
        bool, typer.Option("--every-region", help="Each region's offer, not only the best of a type.")
    ] = False
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Maximum number of offers (default: 15).")
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
    env_file: Annotated[
        tuple[Path, ...],
        typer.Option("--env-file", metavar="FILE", help="File of NAME=VALUE lines."),
        FieldMapping("env", parse_env_files),
    ] = ()
    env: Annotated[
        Many,
        typer.Option("--env", metavar="NAME[=VALUE]", help="A variable of the job. Repeatable."),
        FieldMapping("env", parse_variables),
    ] = ()
    secret: Annotated[
        Many,
        typer.Option("--secret", metavar="[VARIABLE=]NAME", help="A secret of the project, as a variable. Repeatable."),
        FieldMapping("secrets", parse_secrets),
    ] = ()
    data: Annotated[
        Many,
        typer.Option("--data", metavar="[NAME=]PATH", help="Input: a path or URI. Repeatable."),
        FieldMapping("data", parse_data),
    ] = ()
    backend: Annotated[
        Text, typer.Option("--backend", metavar="NAME[,NAME…]", help="Where to run, and where to go on from there.")
    ] = None
    fallback: Annotated[
        Many,
        typer.Option("--fallback", metavar="NAME", help="Fallback backend when the first has no capacity. Repeatable."),
    ] = ()
    market: Annotated[
        Text,
        typer.Option("--market", metavar="MARKET", help="spot, on_demand or reserved machines."),
        FieldMapping("market", MARKET),
    ] = None
    spot: Annotated[bool, typer.Option("--spot", help="The same as --market spot."), FieldMapping("market", SPOT)] = (
        False
    )
    region: Annotated[
        Many,
        typer.Option("--region", metavar="REGION", help="Only there. Repeatable."),
        FieldMapping("regions", parse_names),
    ] = ()
    tier: Annotated[Text, typer.Option("--tier", metavar="TIER", help="A named size; see `crucible tiers`.")] = None
    gpu: Annotated[
        Many,
        typer.Option("--gpu", metavar="TYPE", help="Only GPUs of this type, such as T4 or A100. Repeatable."),
        FieldMapping("gpu_types", parse_names),
    ] = ()
    optimize: Annotated[
        Text,
        typer.Option("--optimize", metavar="AIM", help="cost (default), speed, balanced or deadline."),
        FieldMapping("optimize", OBJECTIVE),
    ] = None
    hours: Annotated[
        float | None, typer.Option("--hours", metavar="N", help="How long it takes, if you know; on --gpu, if given.")
    ] = None
    deadline: Annotated[
        Text,
        typer.Option("--deadline", metavar="TIME", help="Only where it is done within this time, such as 6h."),
        FieldMapping("deadline_hours", HOURS),
    ] = None
    max_cost: Annotated[
        float | None,
        typer.Option("--max-cost", metavar="DOLLARS", help="Only where it costs no more; ended when spent."),
        FieldMapping("max_cost_usd"),
    ] = None
    allow: Annotated[
        Many,
        typer.Option("--allow", metavar="NAME", help="Only these places, in the order of the aim. Repeatable."),
        FieldMapping("allowed_backends", parse_names),
    ] = ()
    dedicated: Annotated[bool, typer.Option("--dedicated", help="Only dedicated (single-tenant) machines.")] = False
    cpus: Annotated[
        float | None, typer.Option("--cpus", metavar="N", help="CPUs, also fractions."), FieldMapping("resources.cpus")
    ] = None
    memory: Annotated[
        Text,
        typer.Option("--memory", metavar="SIZE", help="Memory limit, such as 4G (4 GiB)."),
        FieldMapping("resources.memory_bytes", MEMORY),
    ] = None
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", help="Number of GPUs."), FieldMapping("resources.gpus")
    ] = None
    gpu_memory: Annotated[
        Text,
        typer.Option("--gpu-memory", metavar="SIZE", help="Memory of each GPU, such as 16G (16 GiB)."),
        FieldMapping("resources.gpu_memory_bytes", MEMORY),
    ] = None
    time: Annotated[
        Text,
        typer.Option("--time", metavar="TIME", help="Time limit, such as 1h30m."),
        FieldMapping("resources.seconds", DURATION),
    ] = None
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", help="Higher goes first among your own (default: 0).")
    ] = None
    retries: Annotated[
        int | None,
        typer.Option("--retries", metavar="N", help="Retries after the code failed."),
        FieldMapping("retries.user"),
    ] = None
    retry_wait: Annotated[
        Text,
        typer.Option("--retry-wait", metavar="TIME", help="Time before a retry (default: 60s)."),
        FieldMapping("retries.wait_seconds", DURATION),
    ] = None
    grace: Annotated[
        Text,
        typer.Option("--grace", metavar="TIME", help="Time between TERM and KILL."),
        FieldMapping("grace_seconds", DURATION),
    ] = None
    keep_checkpoints: Annotated[
        int | None,
        typer.Option("--keep-checkpoints", metavar="N", help="Keep the newest N checkpoints (default: 3)."),
        FieldMapping("keep.latest"),
    ] = None
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Value of $CRUCIBLE_SEED.")] = None
    resume_from: Annotated[
        Text, typer.Option("--resume-from", metavar="ID", help="Start from this checkpoint of any job.")
    ] = None
    name: Annotated[Text, typer.Option("--name", metavar="NAME", help="What to call the job.")] = None
    project: Annotated[Text, typer.Option("--project", metavar="NAME", help="Project to run the job in.")] = None
    kind: Annotated[
        Text,
        typer.Option("--kind", metavar="KIND", help="train, inference, benchmark or serve."),
        FieldMapping("kind", KIND),
    ] = None
    tag: Annotated[
        Many, typer.Option("--tag", metavar="TAG", help="Label to find it by. Repeatable."), FieldMapping("tags")
    ] = ()
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit, print the id, return.")] = False
    notify: Annotated[
        bool, typer.Option("--notify", help="Ring the bell and notify the desktop when the job ends.")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say where it would run, for how much, and by which call.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Spend without being asked.")] = False
    plan: bool = False
    """As `dry_run`, without the call that would be sent."""

    @property
    def names_job_file(self) -> bool:
        return self.target is not None and Path(self.target).suffix in JOB_FILES

    def given(self) -> dict[str, object]:
        """The values of the options by their names, of those too that were not given."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "plan"}

    @classmethod
    def of(cls, ctx: typer.Context, **more: Any) -> Options:
        """The command line of this context. Lists that were not given come as None."""
        known = {item.name for item in fields(cls)}
        given = {key: value for key, value in ctx.params.items() if key in known and value is not None}
        lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
        return cls(**{**given, **lists, **more})


_SOME = frozenset(
    {"model", "plugin", "config", "callback", "goal", "suite", "input", "capture", "every_region", "limit"}
)
"""Options that only commands take which name them."""


def flag(name: str) -> str:
    """How an option is written."""
    return f"--{name.replace('_', '-')}"


def spelling() -> dict[str, FieldMapping]:
    """What options fill that are spelt or written in another way than in a JobSpec."""
    hints = get_type_hints(Options, include_extras=True)
    return {name: item for name, hint in hints.items() for item in get_args(hint)[1:] if isinstance(item, FieldMapping)}


def takes_options(
    verb: Callable[[typer.Context], int], *, without: Iterable[str] = (), plus: Iterable[str] = ()
) -> Callable[..., int]:
    """The command with the options of `run`, without some and with more. It reads them with `Options.of`."""
    hints = get_type_hints(Options, include_extras=True)
    options = {name: _parameter(name, *get_args(hint)) for name, hint in hints.items() if get_origin(hint) is Annotated}
    target = options.pop("target")
    others = [item for name, item in options.items() if name not in _SOME and name not in without]
    (ctx,) = inspect.signature(verb).parameters.values()
    ctx = ctx.replace(annotation=typer.Context)
    signature = inspect.Signature([ctx, target, *(options[name] for name in plus), *others], return_annotation=int)

    def invoke(ctx: typer.Context, **_: Any) -> int:
        return verb(ctx)

    invoke.__name__, invoke.__doc__ = verb.__name__, verb.__doc__
    invoke.__annotations__ = {name: item.annotation for name, item in signature.parameters.items()}
    vars(invoke)["__signature__"] = signature
    return invoke


def _parameter(name: str, kind: Any, option: object, *_: FieldMapping) -> inspect.Parameter:
    """An option as the library reads it: what may be given several times is a list, and None if it was not."""
    annotated: Any = Annotated
    listed: Any = list
    several = get_origin(kind) is tuple
    shown = listed[get_args(kind)[0]] | None if several else kind
    default = None if several else getattr(Options, name)
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotated[shown, option]
    )
