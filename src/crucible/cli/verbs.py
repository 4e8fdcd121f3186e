"""`crucible train`, `infer` and `benchmark`: a model by its name, or a script, as a job of that kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from crucible.cli.options import Options, Text, Texts, takes_options
from crucible.cli.results import show_result
from crucible.cli.run import PAYLOADS, check_tier, make_request, make_wishes, run_job, take_up
from crucible.cli.session import Session
from crucible.client.jobfile import read_job_file
from crucible.client.modeljobs import METHODS, ModelAsk, take_model
from crucible.client.payload import Payload
from crucible.client.plugins import read_inputs
from crucible.client.wishes import Wishes
from crucible.core.errors import BadInput
from crucible.core.spec import Kind

_SHORT = ("goal", "suite")
"""Options of their own that stand for `--config NAME=VALUE`."""


@dataclass(frozen=True)
class Asked:
    """What a verb takes besides what `run` takes, as it was written."""

    kind: Kind
    model: str | None = None
    plugin: str | None = None
    config: tuple[str, ...] = ()
    callback: tuple[str, ...] = ()
    input: tuple[str, ...] = ()
    goal: str | None = None
    suite: str | None = None
    capture: str | None = None

    @classmethod
    def of(cls, ctx: typer.Context, kind: Kind) -> Asked:
        own = {item.name for item in fields(cls)}
        given: dict[str, Any] = {key: value for key, value in ctx.params.items() if key in own and value is not None}
        lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
        return cls(kind, **{**given, **lists})

    @property
    def items(self) -> tuple[str, ...]:
        """The config as `--config` would say it."""
        short = (f"{name}={value}" for name in _SHORT if (value := getattr(self, name)) is not None)
        return (*self.config, *short)


_verb = partial(takes_options, without=("kind",))

Model = Annotated[Text, typer.Option("--model", metavar="NAME", help="A model plugin; see `crucible models`.")]
Package = Annotated[
    Text, typer.Option("--plugin", metavar="DIR|REQUIREMENT", help="Where the model comes from, if not installed here.")
]
Config = Annotated[Texts, typer.Option("--config", metavar="FILE|KEY=VALUE", help="Options of the model. Repeatable.")]


@_verb
def train(
    ctx: typer.Context,
    model: Model = None,
    plugin: Package = None,
    config: Config = None,
    callback: Annotated[
        Texts, typer.Option("--callback", metavar="MODULE:CLASS", help="A callback of your own. Repeatable.")
    ] = None,
    goal: Annotated[Text, typer.Option("--goal", metavar="TEXT", help="The same as --config goal=TEXT.")] = None,
    capture: Annotated[
        Text, typer.Option("--capture", metavar="DIR", help="A recording: the same as --data capture=DIR.")
    ] = None,
) -> int:
    """Train a model by its name, or by a script; follow it to its end.

    What stands after -- goes to the script. Ctrl-C detaches; the job goes on.
    """
    return _run(ctx, Kind.TRAIN)


@_verb
def infer(
    ctx: typer.Context,
    model: Model = None,
    plugin: Package = None,
    config: Config = None,
    input: Annotated[
        Texts, typer.Option("--input", metavar="JSON|TEXT|@FILE", help="What to predict from. Repeatable.")
    ] = None,
) -> int:
    """Ask a model, or a script, for a prediction; the last line of standard output is the result, as JSON."""
    return _run(ctx, Kind.INFERENCE)


@_verb
def benchmark(
    ctx: typer.Context,
    model: Model = None,
    plugin: Package = None,
    config: Config = None,
    suite: Annotated[Text, typer.Option("--suite", metavar="NAME", help="The same as --config suite=NAME.")] = None,
) -> int:
    """Measure a model, or run a script that measures; the last line of standard output is the result, as JSON."""
    return _run(ctx, Kind.BENCHMARK)


def _run(ctx: typer.Context, kind: Kind) -> int:
    asked, options = Asked.of(ctx, kind), Options.of(ctx, kind=kind.value)
    if asked.capture is not None:
        options = replace(options, data=(*options.data, f"capture={asked.capture}"))
    session = Session.of(ctx)
    return run_job(session, options, _taker(asked), lambda api, job: show_result(session, api, job))


def _taker(asked: Asked) -> Callable[[Session, Options, Path], tuple[Payload, Wishes]]:
    take = _script if asked.model is None else _model
    return lambda session, options, scratch: take(asked, session, options, scratch)


def _script(asked: Asked, session: Session, options: Options, scratch: Path) -> tuple[Payload, Wishes]:
    """A script gets the inputs as one argument `--input JSON`, before its own; a job file may name a model."""
    if all(getattr(options, name) is None for name in PAYLOADS):
        fix = f"For example: crucible {METHODS[asked.kind]} --model NAME; `crucible models` lists them."
        raise BadInput("There is neither a model nor a script.", fix=fix)
    if options.names_job_file and (found := _from_job_file(asked, session, options, scratch)):
        return found
    for name in ("config", *_SHORT, "callback", "plugin"):
        if getattr(asked, name):
            raise BadInput(
                f"--{name} belongs to a model plugin, and there is no --model.",
                fix="Name the model, or pass what a script takes after --.",
            )
    inputs = read_inputs(asked.input, session.folder)
    if inputs is not None:
        session = replace(session, arguments=("--input", json.dumps(inputs), *session.arguments))
    return take_up(session, options, scratch)


def _from_job_file(asked: Asked, session: Session, options: Options, scratch: Path) -> tuple[Payload, Wishes] | None:
    """The model of a job file; None if it names code."""
    file = read_job_file(str(options.target), make_request(session, options, scratch))
    if file.model is None:
        return None
    wishes = make_wishes(session, options).over(file.wishes)
    check_tier(wishes)
    return file.taken(_ask(asked, file.target, session), wishes)


def _model(asked: Asked, session: Session, options: Options, scratch: Path) -> tuple[Payload, Wishes]:
    if any(getattr(options, name) is not None for name in PAYLOADS):
        raise BadInput("A model and code to run exclude each other.", fix="Leave out --model, or the code.")
    assert asked.model is not None
    request, wishes = make_request(session, options, scratch), make_wishes(session, options)
    return take_model(_ask(asked, asked.model, session), request, wishes)


def _ask(asked: Asked, model: str, session: Session) -> ModelAsk:
    inputs = read_inputs(asked.input, session.folder)
    return ModelAsk(model, session.folder, {}, asked.items, asked.plugin, inputs, asked.callback)


@partial(takes_options, without=("detach", "notify", "dry_run", "yes"))
def plan(
    ctx: typer.Context,
    every_region: Annotated[
        bool, typer.Option("--every-region", help="Each region's offer, not only the best of a type.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", help="At most so many offers; 15.")] = None,
) -> int:
    """Read a program: what it needs, what all of it costs at each place, and when it would be done. Runs nothing.

    Takes what `run` takes. → is where `run` would go; ○ are places that are not connected.
    """
    return run_job(Session.of(ctx), Options.of(ctx, plan=True))
