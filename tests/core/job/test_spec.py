from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crucible.core.compute.offers import Market
from crucible.core.compute.resources import GiB, Resources
from crucible.core.job.spec import (
    DEFAULT_BACKEND,
    MAX_ARGUMENTS_BYTES,
    MAX_DIFF,
    MAX_ENV,
    PYTHON,
    DataInput,
    EnvironmentSpec,
    JobSpec,
    Kind,
    Retries,
    Shape,
    Source,
    SourceKind,
)

SHA = "0123456789abcdef" * 4

FULL = JobSpec(
    command=(PYTHON, "train.py", "--lr", "0.1"),
    name="first try",
    kind=Kind.BENCHMARK,
    bundle=SHA,
    environment=EnvironmentSpec(requirements=("numpy==2.0",), python="3.12", origin="requirements.txt"),
    env={"WANDB_MODE": "offline"},
    data=(DataInput(name="mnist", source="https://example.org/mnist.tar"),),
    backend="local",
    tier="CPU_SMALL",
    resources=Resources(cpus=2, memory_bytes=GiB, gpus=1, seconds=60),
    retries=Retries(user=2),
    grace_seconds=30,
    tags=("vision", "baseline"),
    source=Source(kind=SourceKind.GIT, url="https://example.org/r.git", commit="abc", dirty=True, diff="+x"),
)


def spec(**fields: object) -> JobSpec:
    return JobSpec.model_validate({"command": ["true"], **fields})


def refused(message: str, **fields: object) -> None:
    with pytest.raises(ValidationError, match=message):
        spec(**fields)


def test_a_command_is_enough() -> None:
    plain = spec()
    assert (plain.kind, plain.shape, plain.name, plain.tier) == (Kind.TRAIN, Shape.TASK, None, None)
    assert plain.retries == Retries(interruption=10, infrastructure=3, user=0)
    assert plain.resources.whole_machine


def test_a_spec_is_the_same_after_a_trip_through_json() -> None:
    assert JobSpec.model_validate_json(FULL.model_dump_json()) == FULL
    assert JobSpec.model_validate(FULL.model_dump(mode="json")) == FULL


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), min_size=1, max_size=30)


@given(
    st.lists(texts, min_size=1, max_size=5),
    texts,
    st.dictionaries(st.from_regex("X[A-Z0-9_]{0,9}", fullmatch=True), texts),
)
def test_any_accepted_spec_is_the_same_after_a_trip_through_json(
    command: list[str], name: str, env: dict[str, str]
) -> None:
    made = spec(command=["run", *command], name=name, env=env, tags=[name])
    assert JobSpec.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize("field", ["command", "name", "kind", "resources", "retries", "env", "source"])
def test_nothing_of_a_spec_can_be_set(field: str) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(FULL, field, getattr(FULL, field))


@pytest.mark.parametrize("where", ["", "environment", "resources", "retries", "source"])
def test_an_unknown_field_is_refused_at_every_depth(where: str) -> None:
    extra = {"surprise": 1}
    refused("surprise", **(extra if not where else {where: extra}))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([], "at least 1"),
        ([""], "the command is empty"),
        (["  \t"], "the command is empty"),
        (["echo", "a\x00b"], "NUL"),
        (["x" * (MAX_ARGUMENTS_BYTES + 1)], "128 KiB"),
        (["é" * (MAX_ARGUMENTS_BYTES // 2), "x"], "128 KiB"),
        (["x"] * 10_001, "at most 10000"),
        (["\ud800"], "command"),
        ("echo hello", "command"),
    ],
)
def test_commands_that_cannot_be_run_are_refused(command: object, message: str) -> None:
    refused(message, command=command)


def test_a_command_may_be_as_long_as_the_limit() -> None:
    assert len(spec(command=["x" * MAX_ARGUMENTS_BYTES]).command) == 1


@pytest.mark.parametrize("name", ["", "x" * 101, "a/b", "a\\b", "a\nb", "a\n", "a\x1b[2J", "a\x9b2J", "a\x7f"])
def test_names_that_would_break_a_path_or_a_screen_are_refused(name: str) -> None:
    refused("name", name=name)


@pytest.mark.parametrize("tag", ["", "x" * 302, "a\nb", "a\n", "a\x1b[2J", "a\x9b2J", "a\x7f", "a=\x00"])
def test_tags_that_would_break_a_screen_are_refused(tag: str) -> None:
    refused("tags", tags=[tag])


def test_a_tag_may_have_a_path_as_its_value() -> None:
    assert spec(tags=["data=/mnt/a b"]).tags == ("data=/mnt/a b",)


def test_names_may_be_in_any_script() -> None:
    assert spec(name="обучение №1 – 数据").name == "обучение №1 – 数据"


@pytest.mark.parametrize("bundle", ["", SHA[:-1], SHA + "0", SHA.upper(), SHA + "\n", "../" + SHA[3:]])
def test_a_bundle_is_a_sha256(bundle: str) -> None:
    refused("bundle", bundle=bundle)


def test_a_job_has_a_bundle_or_runs_in_place() -> None:
    assert spec(in_place="/home/me/project").bundle is None
    refused("not both", bundle=SHA, in_place="/home/me")
    refused("absolute", in_place="project")
    refused("absolute", in_place="")
    refused("in_place", in_place="/tmp/\x00")


def test_a_job_starts_in_a_folder_of_its_bundle() -> None:
    job = spec(bundle=SHA, workdir="experiments/first", command=("{python}", "../train.py", "-v"))
    assert job.words_in_bundle == ("experiments/first/{python}", "experiments/train.py", "experiments/first/-v")
    assert "workdir" not in spec(bundle=SHA).model_dump()
    assert spec(command=("{python}", "train.py")).words_in_bundle == ("{python}", "train.py")
    refused("in place", in_place="/home/me", workdir="experiments")
    for folder in ("/", "..", "a/../b", ".", "a//b", "", "a\\b"):
        refused("inside the bundle", workdir=folder)


def test_services_are_not_taken_yet() -> None:
    refused("services are not supported yet", shape="service")


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A=B", "A B", "A\n", "É", "A\x00"])
def test_names_of_environment_variables(name: str) -> None:
    refused("is not a valid name of an environment variable", env={name: "1"})


@pytest.mark.parametrize("name", ["CRUCIBLE_JOB_ID", "CRUCIBLE_", "CUDA_VISIBLE_DEVICES"])
def test_variables_that_crucible_sets_are_refused(name: str) -> None:
    refused(f"{name} is set by Crucible itself", env={name: "1"})


def test_a_program_may_ask_for_the_signal_of_a_checkpoint() -> None:
    assert spec(env={"CRUCIBLE_CHECKPOINT_SIGNAL": "USR1"}).env == {"CRUCIBLE_CHECKPOINT_SIGNAL": "USR1"}


@pytest.mark.parametrize("value", ["a\x00b", "x" * (64 * 1024 + 1), "é" * (32 * 1024 + 1)])
def test_values_of_environment_variables_have_a_size_in_bytes(value: str) -> None:
    refused("64 KiB or contains a NUL", env={"A": value})
    assert len(spec(env={"A": "x" * 64 * 1024, "_b2": ""}).env) == 2


def test_there_is_an_end_to_the_number_of_variables() -> None:
    assert len(spec(env={f"V{i}": "" for i in range(MAX_ENV)}).env) == MAX_ENV
    refused("at most 256", env={f"V{i}": "" for i in range(MAX_ENV + 1)})


def test_a_refusal_does_not_show_the_values_of_variables() -> None:
    with pytest.raises(ValidationError) as caught:
        spec(env={"TOKEN": "hunter2", "bad name": "x"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\x00", "a\nb", "x" * 201])
def test_a_data_input_has_a_name_that_is_one_file_name(name: str) -> None:
    refused("name", data=[{"name": name, "source": "s3://bucket/x"}])


@pytest.mark.parametrize("source", ["", "x" * 4097, "a\x00"])
def test_a_data_input_has_a_source(source: str) -> None:
    refused("source", data=[{"name": "x", "source": source}])


def test_two_data_inputs_cannot_share_a_name() -> None:
    twice = [{"name": "x", "source": "a"}, {"name": "x", "source": "b"}]
    refused("two data inputs have the same name", data=twice)
    refused("at most 256", data=[{"name": str(i), "source": "a"} for i in range(257)])


@pytest.mark.parametrize(
    "ways",
    [
        {"interpreter": "/usr/bin/python3", "requirements": ["numpy"]},
        {"interpreter": "/usr/bin/python3", "project": "."},
        {"requirements": ["numpy"], "project": "."},
    ],
)
def test_an_environment_is_made_in_one_way(ways: dict[str, object]) -> None:
    refused("only one of interpreter, requirements and project", environment=ways)


@pytest.mark.parametrize("budget", ["interruption", "infrastructure", "user"])
def test_retries_have_bounds(budget: str) -> None:
    assert spec(retries={budget: 0}).retries == Retries.model_validate({budget: 0})
    for count in (-1, 1001, 1.5):
        refused(budget, retries={budget: count})


@pytest.mark.parametrize(("field", "most"), [("grace_seconds", 3600), ("wait_seconds", 86400)])
def test_waits_have_bounds(field: str, most: float) -> None:
    def wrap(value: float) -> dict[str, object]:
        return {field: value} if field == "grace_seconds" else {"retries": {field: value}}

    for value in (0, most):
        spec(**wrap(value))
    for value in (-1, most + 1, math.nan, math.inf):
        refused(field, **wrap(value))


def test_kinds_and_sources_are_known_words() -> None:
    refused("kind", kind="training")
    refused("kind", source={"kind": "zip"})
    refused("diff", source={"diff": "x" * (MAX_DIFF + 1)})
    refused("at most 50", tags=["x"] * 51)


def test_secrets_are_named_by_the_variable_they_become() -> None:
    spec = JobSpec(command=("true",), secrets={"HF_TOKEN": "hugging-face"})
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_job_without_secrets_is_written_as_before_there_were_any() -> None:
    assert "secrets" not in JobSpec(command=("true",)).model_dump(mode="json")


def test_a_plain_job_is_written_as_by_version_0_1_0() -> None:
    """A server of 0.1.0 refuses unknown keys, and idempotency compares hashes of the JSON: see `JobSpec.priority`."""
    assert spec().model_dump(mode="json") == {
        "command": ["true"],
        "name": None,
        "project": None,
        "kind": "train",
        "shape": "task",
        "bundle": None,
        "in_place": None,
        "environment": {"interpreter": None, "requirements": [], "project": None, "python": None, "origin": ""},
        "env": {},
        "data": [],
        "backend": None,
        "fallback": [],
        "market": None,
        "regions": [],
        "tier": None,
        "resources": {"cpus": None, "memory_bytes": None, "gpus": 0, "gpu_memory_bytes": None, "seconds": None},
        "retries": {"interruption": 10, "infrastructure": 3, "user": 0, "wait_seconds": 60.0},
        "keep": {"latest": 3, "best": 1, "every": None, "higher_is_better": False},
        "seed": None,
        "resume_from": None,
        "rerun_of": None,
        "grace_seconds": 10.0,
        "tags": [],
        "source": {
            "kind": "shell", "path": None, "url": None, "ref": None, "commit": None, "dirty": False, "diff": None,
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    "secrets",
    [
        {"1X": "name"},
        {"CRUCIBLE_SEED": "name"},
        {"CUDA_VISIBLE_DEVICES": "name"},
        {"LD_PRELOAD": "name"},
        {"PATH": "name"},
        {"X": "no name"},
        {"X": ""},
        {f"X{n}": "name" for n in range(65)},
    ],
)
def test_secrets_that_cannot_be(secrets: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        JobSpec(command=("true",), secrets=secrets)


def test_a_variable_is_plain_or_secret() -> None:
    with pytest.raises(ValidationError, match="X is both a variable and a secret"):
        JobSpec(command=("true",), env={"X": "1"}, secrets={"X": "name"})


def bound_for(backend: str | None = None, *fallback: str) -> JobSpec:
    return JobSpec(command=("true",), backend=backend, fallback=fallback)


def test_without_a_wish_a_job_is_for_this_computer() -> None:
    assert bound_for().backends == (DEFAULT_BACKEND,)


def test_the_line_is_the_users_own_each_place_once() -> None:
    assert bound_for("rehearsal", "local", "rehearsal").backends == ("rehearsal", "local")


@pytest.mark.parametrize("nodes", [0, 1025, True, "2", 1.5])
def test_a_job_has_a_whole_number_of_nodes(nodes: object) -> None:
    with pytest.raises(ValidationError):
        JobSpec.model_validate({"command": ["true"], "nodes": nodes})


@pytest.mark.parametrize("priority", [True, "7", 1.5])
def test_a_priority_is_a_whole_number(priority: object) -> None:
    with pytest.raises(ValidationError):
        JobSpec.model_validate({"command": ["true"], "priority": priority})


def test_a_spot_fallback_means_spot_and_goes_with_no_other_market() -> None:
    assert spec(spot_fallback=True).market is Market.SPOT
    assert JobSpec.model_validate_json(spec(spot_fallback=True).model_dump_json()) == spec(spot_fallback=True)
    assert spec(market="spot").spot_fallback is False
    refused("needs the market spot, not on_demand", market="on_demand", spot_fallback=True)
    refused("spot_fallback", spot_fallback="yes")
    refused("market", market="none", spot_fallback=True)
