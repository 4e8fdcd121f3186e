"""DeepSpeed's settings, wherever they stand."""

from __future__ import annotations

import json

import pytest
from tests.analysis.programs import read

from crucible.core.compute.resources import Resources
from crucible.core.routing.plan_request import PlanRequest
from crucible.core.routing.profile import Confidence, Distribution, Memory, Precision, Profile
from crucible.core.routing.profile_input import make_workload

PROGRAM = """
import argparse, deepspeed, torch
parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
args = parser.parse_args()
model = torch.nn.Linear(10_000, 10_000, bias=False)
engine, optimizer, _, _ = deepspeed.initialize(args=args, model=model{more})
for step in range(100):
    engine.backward(engine(torch.randn(4, 10_000, device=engine.device)).sum())
    engine.step()
"""
PARAMETERS = 1e8


def config(**more: object) -> dict[str, object]:
    return {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW"}, "bf16": {"enabled": True}, **more}


def zero(stage: int, **more: object) -> dict[str, object]:
    return config(zero_optimization={"stage": stage, **more})


def parts(profile: Profile) -> Memory:
    assert profile.memory.value is not None
    return profile.memory.value


def told(given: dict[str, object]) -> Profile:
    return read(PROGRAM.format(more=f", config={given!r}"))


@pytest.mark.parametrize(
    "profile",
    [
        told(zero(2)),
        read(PROGRAM.format(more=", config='ds.json'"), **{"ds.json": json.dumps(zero(2))}),
        read(PROGRAM.format(more=""), "--deepspeed_config", "conf/ds.json", **{"conf/ds.json": json.dumps(zero(2))}),
        read(PROGRAM.format(more=""), "--deepspeed_config=ds.json", **{"ds.json": json.dumps(zero(2))}),
    ],
    ids=["a dict", "a file that is named", "on the command line", "with an equals sign"],
)
def test_settings_are_found_where_they_stand(profile: Profile) -> None:
    assert (profile.distribution.value, profile.precision.value) == (Distribution.DEEPSPEED, Precision.BF16)
    assert (profile.batch_size.value, profile.optimizer.value) == (4, "AdamW")
    assert parts(profile).sharded > 0


def test_each_stage_splits_more_of_what_is_kept() -> None:
    """Weights and gradients in two bytes, the optimizer with its two states and a copy in four each."""
    whole = [2.0, 2.0, 12.0]
    for stage, shared in ((0, 0.0), (1, 12.0), (2, 14.0), (3, 16.0)):
        found = parts(told(zero(stage)))
        assert [found.weights / PARAMETERS, found.gradients / PARAMETERS, found.optimizer / PARAMETERS] == whole
        assert found.sharded / PARAMETERS == shared


def test_full_precision_keeps_no_second_copy() -> None:
    given = {name: value for name, value in zero(1).items() if name != "bf16"}
    found = parts(told(given))
    assert (found.weights, found.gradients, found.optimizer) == (4 * PARAMETERS, 4 * PARAMETERS, 8 * PARAMETERS)
    assert told(given).precision.value is Precision.FP32


def test_what_is_offloaded_is_in_the_memory_of_the_machine() -> None:
    profile = told(zero(2, offload_optimizer={"device": "cpu"}))
    assert (parts(profile).optimizer, parts(profile).gradients) == (0, 0)
    assert profile.host_memory.value is not None
    assert profile.host_memory.value.offloaded == 1.5 * 16 * PARAMETERS
    weights = told(zero(3, offload_optimizer={"device": "cpu"}, offload_param={"device": "cpu"}))
    assert parts(weights).weights == 0
    assert weights.host_memory.value is not None
    assert weights.host_memory.value.offloaded == 1.5 * 18 * PARAMETERS


def test_of_what_is_on_nvme_only_buffers_are_in_the_memory_of_the_machine() -> None:
    weights = {"device": "nvme", "buffer_count": 4, "buffer_size": 1e6}
    found = told(zero(3, offload_optimizer={"device": "nvme"}, offload_param=weights, sub_group_size=1e7))
    assert (parts(found).weights, parts(found).gradients, parts(found).optimizer) == (0, 0, 0)
    assert found.host_memory.value is not None
    assert found.host_memory.value.offloaded == 16 * 1e7 + 2 * 4e6


def test_what_is_split_takes_less_of_each_gpu() -> None:
    profile = told(zero(3))
    one, eight = (
        make_workload(PlanRequest(resources=Resources(gpus=count)), profile).need.gpu_memory_bytes or 0
        for count in (1, 8)
    )
    assert one - eight == pytest.approx(16 * PARAMETERS * 7 / 8, rel=0.01)


def test_weights_are_not_counted_twice_where_they_end_in_the_memory_of_the_machine() -> None:
    host = told(zero(3, offload_optimizer={"device": "cpu"}, offload_param={"device": "cpu"})).host_memory.value
    assert host is not None
    assert (host.model, host.offloaded) == (0.0, 1.5 * 18 * PARAMETERS)


def test_offloaded_states_are_there_once_however_many_processes_there_are() -> None:
    profile = told(zero(2, offload_optimizer={"device": "cpu"}))
    host = profile.host_memory.value
    assert host is not None
    assert host.of_processes(8) - host.total == pytest.approx(7 * (host.total - host.offloaded))


@pytest.mark.parametrize(
    ("given", "batch"),
    [
        ({"train_micro_batch_size_per_gpu": 8, "train_batch_size": 256}, 8),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 4}, 16),
        ({"train_batch_size": "auto", "zero_optimization": {}}, 4),
    ],
)
def test_the_batch_of_a_gpu_is_what_is_left_of_the_whole(given: dict[str, object], batch: int) -> None:
    assert told(given).batch_size.value == batch


def test_a_batch_of_all_gpus_is_not_sure_where_nobody_says_how_many_they_are() -> None:
    whole: dict[str, object] = {"train_batch_size": 64}
    assert told(whole).batch_size.confidence is Confidence.LOW
    assert "the batch of all GPUs together" in told(whole).batch_size.why
    known = read(f"num_gpus = 8\n{PROGRAM.format(more=f', config={whole!r}')}")
    assert (known.batch_size.value, known.batch_size.confidence) == (8, Confidence.HIGH)
    assert told(config()).batch_size.confidence is Confidence.HIGH


def test_weights_that_do_not_learn_are_offloaded_too() -> None:
    given = zero(3, offload_optimizer={"device": "cpu"}, offload_param={"device": "cpu"})
    program = PROGRAM.replace(
        "model = torch.nn.Linear(10_000, 10_000, bias=False)",
        "model = torch.nn.Sequential(torch.nn.Linear(10_000, 10_000, bias=False), torch.nn.Linear(10_000, 10))\n"
        "for each in model[0].parameters():\n    each.requires_grad = False",
    )
    found = read(program.format(more=f", config={given!r}"))
    learns = 100_010
    assert found.trainable_parameters.value == learns
    assert found.host_memory.value is not None
    assert found.host_memory.value.offloaded == 1.5 * (16 * learns + 2 * (PARAMETERS + learns))


def test_the_trainers_of_transformers_take_such_settings_too() -> None:
    program = """
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    arguments = TrainingArguments("out", per_device_train_batch_size=2, deepspeed="ds.json")
    Trainer(model, arguments).train()
    """
    auto = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}
    found = read(program, **{"ds.json": json.dumps(auto)})
    assert (found.distribution.value, found.batch_size.value) == (Distribution.DEEPSPEED, 2)
    assert parts(found).sharded == pytest.approx(16 * 124e6, rel=0.02)
    assert "From its DeepSpeed settings (ds.json)." in found.distribution.why


TRAINER = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("out", bf16=True, deepspeed="ds.json")).train()
"""
LIGHTNING = """
import lightning as L, torch
trainer = L.Trainer(strategy="deepspeed_stage_3", devices=4, precision="bf16-mixed")
model = torch.nn.Linear(10_000, 10_000, bias=False)
optimizer = torch.optim.Adam(model.parameters())
"""
ACCELERATE = """
import torch
from accelerate import Accelerator, DeepSpeedPlugin
accelerator = Accelerator(mixed_precision="bf16", deepspeed_plugin=DeepSpeedPlugin(zero_stage=2))
model = torch.nn.Linear(10_000, 10_000, bias=False)
model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters()))
for step in range(100):
    accelerator.backward(model(torch.randn(4, 10_000, device=accelerator.device)).sum())
    optimizer.step()
"""


@pytest.mark.parametrize("program", [TRAINER, LIGHTNING, ACCELERATE], ids=["a Trainer", "Lightning", "Accelerate"])
def test_a_trainer_says_the_precision_that_settings_leave_open(program: str) -> None:
    auto = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}
    found = read(program, **{"ds.json": json.dumps(auto)})
    count = found.parameters.value or 0
    assert (parts(found).weights, parts(found).gradients, parts(found).optimizer) == (2 * count, 2 * count, 12 * count)


def test_autocast_beside_deepspeed_leaves_weights_in_full_precision() -> None:
    given = {name: value for name, value in zero(1).items() if name != "bf16"}
    program = PROGRAM.format(more=f", config={given!r}")
    program = program.replace("    engine.backward", "    with torch.autocast('cuda', torch.bfloat16): engine.backward")
    found = read(program)
    assert (found.precision.value, parts(found).weights) == (Precision.BF16, 4 * PARAMETERS)


def test_lightning_names_a_stage() -> None:
    program = """
    import lightning as L, torch
    trainer = L.Trainer(strategy="deepspeed_stage_3_offload", devices=4, precision="bf16-mixed")
    model = torch.nn.Linear(10_000, 10_000, bias=False)
    optimizer = torch.optim.Adam(model.parameters())
    """
    found = read(program)
    assert found.host_memory.value is not None
    assert found.host_memory.value.offloaded == 1.5 * 18 * PARAMETERS


@pytest.mark.parametrize("text", ["", "[]", "{", "1", '{"zero_optimization": 3}', "[" * 5000])
def test_settings_that_are_none_break_nothing(text: str) -> None:
    found = read(PROGRAM.format(more=", config='ds.json'"), **{"ds.json": text})
    assert found.distribution.value is Distribution.DEEPSPEED
