"""The options of `run`: said once, read by every command that takes them."""

from __future__ import annotations

import inspect
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
import typer

from crucible.cli.jobs.run import run
from crucible.cli.options.job_options import RunOptions, takes_options


def context(**params: Any) -> Any:
    return SimpleNamespace(params=params)


def test_every_field_but_those_of_other_commands_is_an_option_of_run() -> None:
    known = set(inspect.signature(run).parameters)
    of_models = {"model", "plugin", "config", "callback", "goal", "suite", "input", "capture"}
    assert known == {"ctx"} | {item.name for item in fields(RunOptions)} - {"plan", "every_region", "limit"} - of_models


def test_what_was_not_given_is_as_it_was() -> None:
    assert RunOptions.from_typer(context(target=None, env=None, spot=False)) == RunOptions()


def test_lists_are_read_as_tuples_and_what_is_not_ours_is_left() -> None:
    found = RunOptions.from_typer(
        context(env=["A=1", "B"], env_file=[Path("x")], other="tiny"), kind="train", plan=True
    )
    assert (found.env, found.env_file, found.kind, found.plan) == (("A=1", "B"), (Path("x"),), "train", True)


@pytest.mark.parametrize(
    ("target", "is_one"), [("job.yaml", True), ("a/b.toml", True), ("train.py", False), (None, False)]
)
def test_a_job_file_is_known_by_its_ending(target: str | None, is_one: bool) -> None:
    assert RunOptions(target=target).names_job_file is is_one


def test_a_commands_own_options_stand_between_the_target_and_the_rest() -> None:
    heard: list[Any] = []

    @partial(takes_options, without=("detach",), plus=("model",))
    def verb(ctx: typer.Context) -> int:
        """What it does."""
        heard.append(ctx)
        return 7

    names = list(inspect.signature(verb).parameters)
    assert names[:4] == ["ctx", "target", "model", "code"]
    assert "detach" not in names
    assert (verb.__name__, verb.__doc__) == ("verb", "What it does.")
    assert get_type_hints(verb, include_extras=True)["env"].__args__[0] == list[str] | None
    ctx = context()
    assert verb(ctx, model="tiny") == 7
    assert heard == [ctx]
