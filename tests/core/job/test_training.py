from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crucible.core.compute.offers import Market
from crucible.core.errors import BadInput
from crucible.core.job.spec import JobSpec
from crucible.core.job.training import (
    Orchestration,
    PreparedJob,
    TrainingConfig,
    TrainingRequest,
    job_fields,
    model_order,
    prepare_job,
    read_config,
)

CODE = "print('epoch 1/1 loss=0.5')"


def prepared(**config: Any) -> PreparedJob:
    return prepare_job(TrainingRequest.model_validate({"model_name": "resnet", "config": config}))


def test_code_becomes_a_bundle_beside_its_config() -> None:
    found = prepared(code=CODE, epochs=3, lr=0.1, args=["--fast", 2])
    assert found.spec.command == ("{python}", "main.py", "--fast", "2")
    assert found.files["main.py"] == CODE.encode()
    told = json.loads(found.files["config.json"])
    assert told == {"epochs": 3, "lr": 0.1, "args": ["--fast", 2]}
    assert json.loads(found.spec.env["CONFIG"]) == told
    assert (found.spec.env["MODEL_PLUGIN"], found.spec.name) == ("resnet", "resnet")


def test_a_script_runs_where_it_lies() -> None:
    found = prepared(script="/srv/models/train.py")
    assert found.spec.command == ("{python}", "train.py")
    assert (found.spec.in_place, found.files) == ("/srv/models", {})


def test_a_command_runs_on_code_that_was_sent_before() -> None:
    spec = prepared(command=["make", "train"], bundle="a" * 64, args=[1]).spec
    assert (spec.command, spec.bundle) == (("make", "train", "1"), "a" * 64)


def test_what_brings_no_program_is_asked_of_a_model_plugin() -> None:
    sent = {"model_name": "resnet", "config": {"epochs": 3, "lr": 0.1, "executor": "local", "seed": 7}}
    order = model_order(TrainingRequest.model_validate(sent))
    assert order is not None
    assert (order.model, order.method, order.config) == ("resnet", "train", {"epochs": 3, "lr": 0.1})
    assert model_order(TrainingRequest.model_validate({"model_name": "resnet", "config": {"code": CODE}})) is None


def test_a_model_that_is_no_plugin_says_what_to_send_instead() -> None:
    with pytest.raises(BadInput) as raised:
        prepare_job(TrainingRequest(model_name="resnt"))
    assert "`code` (its text)" in raised.value.fix


def test_what_is_asked_for_is_passed_on() -> None:
    spec = prepared(
        code=CODE,
        executor="rehearsal",
        tier="GPU_SMALL",
        resources={"seconds": 60},
        requirements=["numpy"],
        allow_spot_instances=True,
        max_retries=2,
        resume_from="ckp-1",
        seed=7,
    ).spec
    assert (spec.backend, spec.tier, spec.resources.seconds, spec.market) == ("rehearsal", "GPU_SMALL", 60, Market.SPOT)
    assert (spec.spot_fallback, prepared(code=CODE).spec.spot_fallback) == (True, False)
    assert (spec.environment.requirements, spec.retries.interruption) == (("numpy",), 2)
    assert (spec.resume_from, spec.seed) == ("ckp-1", 7)


def test_without_a_size_it_is_small() -> None:
    assert prepared(code=CODE).spec.tier == "CPU_SMALL"
    assert prepared(code=CODE, resources={"cpus": 4}).spec.tier is None


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"code": CODE, "script": "/a.py"}, "config.script"),
        ({"script": "train.py"}, "config.script"),
        ({"script": "/"}, "config.script"),
        ({"code": CODE, "notes": "x" * 70_000}, "env"),
        ({"command": ["   "]}, "command"),
        ({"command": ["a\0b"]}, "command"),
    ],
)
def test_what_cannot_be_run_is_said(config: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as raised:
        prepared(**config)
    assert raised.value.data["field"] == field
    assert raised.value.fix


@pytest.mark.parametrize(
    "config",
    [
        {"epochs": 0},
        {"epochs": "many"},
        {"max_retries": -1},
        {"bundle": "x"},
        {"code": ""},
        {"resources": {"cpus": -1}},
    ],
)
def test_what_is_out_of_bounds_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        prepared(**config)


@pytest.mark.parametrize(("depth", "fine"), [(45, True), (60, False), (400, False), (5000, False)])
def test_a_config_is_only_so_deep(depth: int, fine: bool) -> None:
    deep: Any = 1
    for n in range(depth):
        deep = [deep] if n % 2 else {"a": deep}
    if fine:
        assert prepared(code=CODE, deep=deep).spec.env["CONFIG"]
        return
    with pytest.raises(ValidationError, match="more than 50 deep"):
        prepared(code=CODE, deep=deep)


@pytest.mark.parametrize("odd", ["\ud800", ["a", "b\udfff"], {"a\udc80": 1}, [{"a": {"b": ["\ud800"]}}]])
def test_half_a_character_in_a_config_is_refused(odd: Any) -> None:
    with pytest.raises(ValidationError, match="half a character"):
        prepared(code=CODE, odd=odd)
    assert prepared(code=CODE, odd="a whole one: \U0001f4a5").spec.env["CONFIG"]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)
_keys = st.sampled_from([*TrainingConfig.model_fields, "x"]) | st.text(max_size=8)


@given(st.dictionaries(_keys, _json, max_size=6), st.text(max_size=12))
def test_whatever_is_sent_is_a_job_or_is_refused(config: dict[str, Any], model: str) -> None:
    try:
        found = prepare_job(TrainingRequest.model_validate({"model_name": model, "config": config}))
    except (ValidationError, BadInput):
        return
    assert JobSpec.model_validate_json(found.spec.model_dump_json()) == found.spec
    assert read_config(found.spec)[0] == model


def test_the_record_is_what_was_sent() -> None:
    spec = prepared(code=CODE, epochs=3).spec
    assert read_config(spec) == ("resnet", {"epochs": 3})


@pytest.mark.parametrize("told", ["", "no json", "[1]"])
def test_a_job_that_came_another_way_has_its_name(told: str) -> None:
    assert read_config(JobSpec(command=("x",), name="mine", env={"CONFIG": told})) == ("mine", {})


def orchestration(**changes: Any) -> Orchestration:
    given = {
        "tenant_id": "my-tenant",
        "training_params": {"epochs": 10, "batch_size": 16, "learning_rate": 0.001, "model_type": "detection"},
        "model_params": {"architecture": "yolo", "input_size": 640},
        "custom_name": "my-training-job",
        "wandb_tags": ["tag1", "tag2"],
    }
    return Orchestration.model_validate({**given, **changes})


def test_a_tenants_wish_is_a_training_request() -> None:
    request = orchestration(training_params={"epochs": 10, "batch_size": 16, "code": CODE}).request()
    assert (request.model_name, request.name, request.tenant_id) == ("yolo", "my-training-job", "my-tenant")
    assert request.tags == ("tag1", "tag2")
    config = json.loads(job_fields(request)["env"]["CONFIG"])
    assert (config["epochs"], config["batch_size"]) == (10, 16)
    assert config["model_params"] == {"architecture": "yolo", "input_size": 640}


def test_to_a_model_plugin_the_models_parameters_are_options_like_the_others() -> None:
    order = model_order(orchestration().request())
    assert order is not None
    expected = {"epochs": 10, "batch_size": 16, "learning_rate": 0.001, "model_type": "detection", "input_size": 640}
    assert (order.model, order.config) == ("yolo", expected)
    named = model_order(orchestration(model_params={"input_size": 640}).request())
    assert named is not None
    assert (named.model, "model_type" in named.config) == ("detection", False)


def test_what_is_said_in_both_tables_is_refused() -> None:
    with pytest.raises(BadInput, match="epochs is given twice"):
        orchestration(model_params={"architecture": "yolo", "epochs": 3}).request()


def test_a_program_hears_of_tenant_name_and_tags() -> None:
    env = prepare_job(orchestration(training_params={"code": CODE}).request()).spec.env
    told = {name: env[name] for name in ("TENANT_ID", "WANDB_NAME", "WANDB_TAGS")}
    assert told == {"TENANT_ID": "my-tenant", "WANDB_NAME": "my-training-job", "WANDB_TAGS": "tag1,tag2"}
    assert set(prepared(code=CODE).spec.env) == {"CONFIG", "MODEL_PLUGIN"}


def test_a_program_may_bring_its_python() -> None:
    spec = prepared(command=["{python}", "a.py"], environment={"interpreter": "/opt/python", "origin": "said"}).spec
    assert spec.environment.interpreter == "/opt/python"
    assert "environment" not in json.loads(spec.env["CONFIG"])
    with pytest.raises(BadInput, match="requirements and an environment"):
        prepared(code=CODE, requirements=["numpy"], environment={"interpreter": "/opt/python"})


def test_the_type_stands_in_for_the_architecture_and_something_must_be_said() -> None:
    assert orchestration(model_params={}).request().model_name == "detection"
    with pytest.raises(BadInput):
        orchestration(model_params={}, training_params={}).request()


def test_what_only_the_two_together_make_too_deep_is_refused_as_well() -> None:
    deep: Any = 1
    for _ in range(49):
        deep = [deep]
    with pytest.raises(BadInput):
        orchestration(training_params={"code": CODE}, model_params={"architecture": "yolo", "deep": deep}).request()


@pytest.mark.parametrize(
    "wrong",
    [
        {"tenant_id": ""},
        {"tenant_id": "a/b"},
        {"training_params": {"learning_rate": 0}},
        {"training_params": {"batch_size": "x"}},
        {"model_params": {"input_size": 0}},
        {"wandb_tags": ["a\n"]},
        {"surprise": 1},
    ],
)
def test_a_wish_that_is_not_right(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        orchestration(**wrong)
