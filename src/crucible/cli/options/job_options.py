"""The options of `crucible run`, shared by `plan`, `train`, `infer` and `benchmark`.

Each option is declared once, with its help. `FieldMapping` names the field of the job or goal that it sets, where the
option's name or syntax differs from the field's.
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
    parse_no_outputs,
    parse_patterns,
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
"""How typer passes a repeatable option; None if it was not given."""
Many = tuple[str, ...]
"""A repeatable option once read."""


@dataclass(frozen=True)
class RunOptions:
    """The command line of `run`, before it becomes a job."""

    target: Annotated[
        Text,
        typer.Argument(
            metavar="[TARGET]", help="Script, directory, notebook, git URL, job file, or - for standard input."
        ),
    ] = None
    model: Annotated[Text, typer.Option("--model", metavar="NAME", help="Model plugin; see `crucible models`.")] = None
    plugin: Annotated[
        Text,
        typer.Option(
            "--plugin", metavar="DIR|REQUIREMENT", help="Folder or package of the model, if it is not installed here."
        ),
    ] = None
    config: Annotated[
        Many,
        typer.Option("--config", metavar="FILE|KEY=VALUE", help="Model options, as a file or KEY=VALUE. Repeatable."),
    ] = ()
    callback: Annotated[
        Many, typer.Option("--callback", metavar="MODULE:CLASS", help="Training callback class. Repeatable.")
    ] = ()
    goal: Annotated[Text, typer.Option("--goal", metavar="TEXT", help="Same as --config goal=TEXT.")] = None
    suite: Annotated[Text, typer.Option("--suite", metavar="NAME", help="Same as --config suite=NAME.")] = None
    input: Annotated[
        Many, typer.Option("--input", metavar="JSON|TEXT|@FILE", help="Input of the prediction. Repeatable.")
    ] = ()
    capture: Annotated[Text, typer.Option("--capture", metavar="DIR", help="Same as --data capture=DIR.")] = None
    every_region: Annotated[
        bool, typer.Option("--every-region", help="List every region, not only the best one of each type.")
    ] = False
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="Maximum number of offers to list (default: 15).")
    ] = None
    code: Annotated[Text, typer.Option("--code", "-c", metavar="CODE", help="Run this Python code.")] = None
    shell: Annotated[Text, typer.Option("--shell", metavar="COMMAND", help="Run this command with /bin/sh.")] = None
    template: Annotated[
        Text, typer.Option("--template", metavar="NAME", help="Run a ready-made workload; see `crucible templates`.")
    ] = None
    entry: Annotated[
        Text, typer.Option("--entry", metavar="FILE", help="File to run, within a directory or repository.")
    ] = None
    ref: Annotated[Text, typer.Option("--ref", metavar="REF", help="Branch, tag or commit of a git URL.")] = None
    include: Annotated[
        Many, typer.Option("--include", metavar="PATTERN", help="Also send files matching this pattern. Repeatable.")
    ] = ()
    in_place: Annotated[bool, typer.Option("--in-place", help="Run in the folder itself instead of a copy.")] = False
    python: Annotated[
        Text,
        typer.Option(
            "--python",
            metavar="PATH",
            help="Python interpreter or virtual environment (default: what the code declares, or the shell's).",
        ),
    ] = None
    env_file: Annotated[
        tuple[Path, ...],
        typer.Option("--env-file", metavar="FILE", help="Read variables from a file of NAME=VALUE lines. Repeatable."),
        FieldMapping("env", parse_env_files),
    ] = ()
    env: Annotated[
        Many,
        typer.Option("--env", metavar="NAME[=VALUE]", help="Set an environment variable of the job. Repeatable."),
        FieldMapping("env", parse_variables),
    ] = ()
    secret: Annotated[
        Many,
        typer.Option("--secret", metavar="[VARIABLE=]NAME", help="Pass a project secret as a variable. Repeatable."),
        FieldMapping("secrets", parse_secrets),
    ] = ()
    data: Annotated[
        Many,
        typer.Option("--data", metavar="[NAME=]PATH", help="Input data: a path or URI. Repeatable."),
        FieldMapping("data", parse_data),
    ] = ()
    backend: Annotated[
        Text,
        typer.Option(
            "--backend",
            metavar="NAME[,NAME…]",
            help="Backends in order of preference; the first with room runs the job (default: the best offer).",
        ),
    ] = None
    fallback: Annotated[
        Many,
        typer.Option(
            "--fallback", metavar="NAME", help="Backend to use while those before it have no room. Repeatable."
        ),
    ] = ()
    market: Annotated[
        Text,
        typer.Option("--market", metavar="MARKET", help="Machine market: spot, on_demand or reserved."),
        FieldMapping("market", MARKET),
    ] = None
    spot: Annotated[bool, typer.Option("--spot", help="Same as --market spot."), FieldMapping("market", SPOT)] = False
    spot_fallback: Annotated[
        bool, typer.Option("--spot-fallback", help="Use spot, or on-demand if no spot machine is available.")
    ] = False
    region: Annotated[
        Many,
        typer.Option("--region", metavar="REGION", help="Allow only this region. Repeatable."),
        FieldMapping("regions", parse_names),
    ] = ()
    tier: Annotated[Text, typer.Option("--tier", metavar="TIER", help="Named size; see `crucible tiers`.")] = None
    gpu: Annotated[
        Many,
        typer.Option("--gpu", metavar="TYPE", help="Allow only this GPU type, such as T4 or A100. Repeatable."),
        FieldMapping("gpu_types", parse_names),
    ] = ()
    optimize: Annotated[
        Text,
        typer.Option(
            "--optimize", metavar="GOAL", help="Optimize for cost, speed, balanced or deadline (default: cost)."
        ),
        FieldMapping("optimize", OBJECTIVE),
    ] = None
    hours: Annotated[
        float | None,
        typer.Option(
            "--hours", metavar="N", help="Expected run time in hours, on --gpu if given (default: estimated)."
        ),
    ] = None
    deadline: Annotated[
        Text,
        typer.Option("--deadline", metavar="TIME", help="Finish within this time, such as 6h."),
        FieldMapping("deadline_hours", HOURS),
    ] = None
    max_cost: Annotated[
        float | None,
        typer.Option(
            "--max-cost", metavar="DOLLARS", help="Maximum total cost; the job is stopped when it is reached."
        ),
        FieldMapping("max_cost_usd"),
    ] = None
    allow: Annotated[
        Many,
        typer.Option("--allow", metavar="NAME", help="Allow only this backend. Repeatable."),
        FieldMapping("allowed_backends", parse_names),
    ] = ()
    dedicated: Annotated[bool, typer.Option("--dedicated", help="Use only dedicated (single-tenant) machines.")] = False
    cpus: Annotated[
        float | None,
        typer.Option("--cpus", metavar="N", help="Number of CPUs; fractions are allowed."),
        FieldMapping("resources.cpus"),
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
        typer.Option("--time", metavar="TIME", help="Time limit, such as 1h30m (default: the tier's, or none)."),
        FieldMapping("resources.seconds", DURATION),
    ] = None
    priority: Annotated[
        int | None,
        typer.Option("--priority", metavar="N", help="Order among your own waiting jobs, highest first (default: 0)."),
    ] = None
    retries: Annotated[
        int | None,
        typer.Option("--retries", metavar="N", help="Retries after the code fails (default: 0)."),
        FieldMapping("retries.user"),
    ] = None
    retry_wait: Annotated[
        Text,
        typer.Option("--retry-wait", metavar="TIME", help="Wait before a retry (default: 60s)."),
        FieldMapping("retries.wait_seconds", DURATION),
    ] = None
    max_wait: Annotated[
        Text,
        typer.Option(
            "--max-wait",
            metavar="TIME",
            help="Maximum time in a provider's queue; then the job tries its other backends (default: no limit).",
        ),
        FieldMapping("max_wait_seconds", DURATION),
    ] = None
    grace: Annotated[
        Text,
        typer.Option("--grace", metavar="TIME", help="Time between TERM and KILL (default: 10s)."),
        FieldMapping("grace_seconds", DURATION),
    ] = None
    keep_checkpoints: Annotated[
        int | None,
        typer.Option("--keep-checkpoints", metavar="N", help="Keep the newest N checkpoints (default: 3)."),
        FieldMapping("keep.latest"),
    ] = None
    outputs: Annotated[
        Many,
        typer.Option(
            "--outputs",
            metavar="PATTERN",
            help="Keep only written files that match, such as '*.pt' or runs/. Repeatable (default: all).",
        ),
        FieldMapping("outputs", parse_patterns),
    ] = ()
    no_outputs: Annotated[
        bool,
        typer.Option("--no-outputs", help="Keep no files of the working directory."),
        FieldMapping("outputs", parse_no_outputs),
    ] = False
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Value of $CRUCIBLE_SEED (default: derived from the job's ID)."),
    ] = None
    resume_from: Annotated[
        Text, typer.Option("--resume-from", metavar="ID", help="Start from this checkpoint, of any job.")
    ] = None
    name: Annotated[Text, typer.Option("--name", metavar="NAME", help="Name of the job.")] = None
    project: Annotated[
        Text,
        typer.Option(
            "--project",
            metavar="NAME",
            help="Project to run the job in (default: the setting `project`, or your only project).",
        ),
    ] = None
    kind: Annotated[
        Text,
        typer.Option(
            "--kind", metavar="KIND", help="Kind of job: train, inference, benchmark or serve (default: train)."
        ),
        FieldMapping("kind", KIND),
    ] = None
    tag: Annotated[
        Many,
        typer.Option("--tag", metavar="TAG", help="Tag the job with KEY or KEY=VALUE. Repeatable."),
        FieldMapping("tags"),
    ] = ()
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit, print the job's ID and return.")] = False
    notify: Annotated[
        bool, typer.Option("--notify", help="Ring the bell and notify the desktop when the job ends.")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and the launch request; submit nothing.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the cost confirmation.")] = False
    plan: bool = False
    """Like `dry_run`, without the launch request."""

    @property
    def names_job_file(self) -> bool:
        return self.target is not None and Path(self.target).suffix in JOB_FILES

    def values(self) -> dict[str, object]:
        """Return every option's value by name, including those not given."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "plan"}

    @classmethod
    def from_typer(cls, ctx: typer.Context, **more: Any) -> RunOptions:
        """Read the command line from typer's context. typer passes None for a list that was not given."""
        known = {item.name for item in fields(cls)}
        values = {key: value for key, value in ctx.params.items() if key in known and value is not None}
        lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **lists, **more})


_OPT_IN = frozenset(
    {"model", "plugin", "config", "callback", "goal", "suite", "input", "capture", "every_region", "limit"}
)
"""Options that a command has only if it names them in `plus`."""


def flag_name(name: str) -> str:
    """Return the option as written on the command line."""
    return f"--{name.replace('_', '-')}"


def option_fills() -> dict[str, FieldMapping]:
    """Return, by option, the field it sets where its name or syntax differs from the field's."""
    hints = get_type_hints(RunOptions, include_extras=True)
    return {name: item for name, hint in hints.items() for item in get_args(hint)[1:] if isinstance(item, FieldMapping)}


def takes_options(
    verb: Callable[[typer.Context], int], *, without: Iterable[str] = (), plus: Iterable[str] = ()
) -> Callable[..., int]:
    """Give a command the options of `run`, minus `without`, plus `plus`. It reads them with `RunOptions.from_typer`."""
    hints = get_type_hints(RunOptions, include_extras=True)
    options = {name: _parameter(name, *get_args(hint)) for name, hint in hints.items() if get_origin(hint) is Annotated}
    target = options.pop("target")
    others = [item for name, item in options.items() if name not in _OPT_IN and name not in without]
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
    """Return the option as a parameter for typer, which needs a list or None for a repeatable option."""
    annotated: Any = Annotated
    list_type: Any = list
    several = get_origin(kind) is tuple
    typer_type = list_type[get_args(kind)[0]] | None if several else kind
    default = None if several else getattr(RunOptions, name)
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotated[typer_type, option]
    )
