from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crucible.client.asking import Ask
from crucible.client.candidates import Candidate, Line
from crucible.client.placeviews import BackendView
from crucible.client.requirements import Requirements
from crucible.core.errors import BadInput, UnknownName
from crucible.core.offers import Market
from crucible.core.resources import GiB
from crucible.core.spec import Kind

LINE = Line((Candidate(BackendView(name="far")), Candidate(BackendView(name="local"))))


def asked(**said: Any) -> Ask:
    return Ask.of(code="print(1)", **said)


def test_all_that_can_be_said(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x")
    ask = asked(
        requirements=Requirements(cpus=2, interruptible=True, checkpoint_frequency_minutes=5),
        name="mine",
        project="vision",
        secrets={"KEY": "DEPLOY_KEY"},
        kind="benchmark",
        env={"A": 1, "HOME": None},
        data={"set": "data.csv"},
        tags=["a", "b"],
        retries=2,
        retry_wait_seconds=5,
        keep_checkpoints=4,
        seed=7,
        grace_seconds=3,
    )
    wishes = ask.wishes(LINE, tmp_path, {"HOME": "/home/me"})
    assert (wishes.backend, wishes.fallback, wishes.market) == ("far", ("local",), Market.SPOT)
    assert wishes.env == {"CHECKPOINT_FREQUENCY_MINUTES": "5", "A": "1", "HOME": "/home/me"}
    assert [(item.name, item.source) for item in wishes.data] == [("set", str(tmp_path / "data.csv"))]
    assert (wishes.name, wishes.kind, wishes.tags, wishes.seed) == ("mine", Kind.BENCHMARK, ("a", "b"), 7)
    assert (wishes.retries, wishes.keep) == ({"user": 2, "wait_seconds": 5}, {"latest": 4})
    assert (wishes.grace_seconds, wishes.project, wishes.secrets) == (3, "vision", {"KEY": "DEPLOY_KEY"})
    assert asked(secrets=["HF_TOKEN"]).secrets == {"HF_TOKEN": "HF_TOKEN"}


@pytest.mark.parametrize("most", [0, 1.5, None])
def test_what_it_may_cost_goes_with_the_job_and_with_the_question(tmp_path: Path, most: float | None) -> None:
    ask = asked(requirements={"max_cost_usd": most})
    assert ask.wishes(LINE, tmp_path, {}).max_cost_usd == most
    assert ask.bare_of_market().max_cost_usd == most


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"nmae": "x"}, "Did you mean 'name'"),
        ({"name": 3}, "name is a text"),
        ({"name": "a/b"}, "name must not hold slashes"),
        ({"kind": "trian"}, "Did you mean 'train'"),
        ({"env": ["A=1"]}, "env is a table"),
        ({"env": {"A": object()}}, "env\\['A'\\] is a text"),
        ({"env": {"1A": "x"}}, "no name of an environment variable"),
        ({"env": {"CRUCIBLE_HOME": "x"}}, "set by Crucible itself"),
        ({"data": {"a": "x\0"}}, "data must not hold a NUL"),
        ({"data": ["\ud800"]}, "half a character"),
        ({"secrets": 3}, "secrets is a list of texts"),
        ({"secrets": {"KEY": "not a name"}}, "no name of a secret"),
        ({"secrets": ["1KEY"]}, "no name of a variable"),
        ({"project": "Big Team"}, "project has 1 to 63 of a-z"),
        ({"retry_wait_seconds": -1}, "retry_wait_seconds must be at least 0"),
        ({"tags": 3}, "tags is a list of texts"),
        ({"tags": [3]}, "tags is a list of texts"),
        ({"retries": -1}, "retries must be at least 0"),
        ({"retries": "many"}, "retries is a whole number"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 2**40}, "seed must be less than"),
        ({"retries": True}, "retries is a whole number"),
        ({"grace_seconds": float("nan")}, "grace_seconds is a number"),
        ({"keep_checkpoints": 0}, "keep must be at least 1"),
        ({"grace_seconds": 10**9}, "at most"),
        ({"in_place": "yes"}, "in_place is True or False"),
        ({"places": []}, "names nothing"),
        ({"places": ["a"], "preferences": {"allowed_backends": ["b"]}}, "contradict"),
        ({"requirements": {"gpus": -1}}, "gpus must be at least 0"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_is_sent(said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        asked(**said)


def test_an_argument_that_there_is_not_is_an_unknown_name() -> None:
    with pytest.raises(UnknownName):
        asked(backend="local")


def test_what_is_wrong_with_inputs_is_told_when_they_are_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no variable NOSUCH"):
        asked(env={"NOSUCH": None}).wishes(LINE, tmp_path, {})
    with pytest.raises(BadInput, match=r"data nosuch\.csv does not exist"):
        asked(data=["nosuch.csv"]).wishes(LINE, tmp_path, {})


def test_a_model_brings_its_name_and_what_it_needs() -> None:
    ask = Ask.of(model="tiny", config={"epochs": 3}, requirements={"cpus": 2})
    needs = {"gpus": 1, "gpu_memory_bytes": 12 * GiB}
    found = ask.with_model(replace(ask.bare(), name="tiny", kind=Kind.TRAIN, resources=needs))
    assert (found.name, found.kind) == ("tiny", Kind.TRAIN)
    assert found.requirements == Requirements(cpus=2, gpus=1, gpu_memory_gb=12)
    assert ask.with_model(ask.bare()).requirements == ask.requirements
