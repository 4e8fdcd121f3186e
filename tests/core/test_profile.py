from __future__ import annotations

import json

import pytest

from crucible.core.profile import (
    Conclusion,
    Confidence,
    Dataset,
    Evidence,
    GpuNeed,
    Memory,
    Precision,
    Profile,
    plain,
)

LINE = Evidence("train.py", 3, "model.cuda()")


def test_a_conclusion_without_a_value_is_unknown_and_asks() -> None:
    asked: Conclusion[int] = Conclusion(question="How many?")
    assert not asked.known
    assert Conclusion(0).known


def test_json_has_plain_values_by_name_and_evidence_beside_them() -> None:
    profile = Profile(
        frameworks=Conclusion(("torch",), Confidence.HIGH),
        gpu=Conclusion(GpuNeed.REQUIRED, Confidence.HIGH, (LINE,), False, "It says so."),
        runtime_hours=Conclusion(question="How long?"),
        epochs=Conclusion(100, Confidence.LOW, (), True),
        notes=("It is short.",),
    )
    document = profile.as_json()
    assert document["frameworks"] == ["torch"]
    assert document["gpu"] == "required"
    assert document["runtime_hours"] is None
    assert document["evidence"]["gpu"] == [{"file": "train.py", "line": 3, "text": "model.cuda()"}]  # type: ignore[index,call-overload]
    assert document["unknown"] == {"runtime_hours": "How long?"}
    assert document["assumed"] == ["epochs"]
    assert document["confidence"]["gpu"] == "high"  # type: ignore[index,call-overload]
    assert document["why"] == {"gpu": "It says so."}
    assert document["notes"] == ["It is short."]
    assert json.loads(json.dumps(document)) == document


def test_what_a_value_leaves_out_is_asked_for_in_the_json() -> None:
    document = Profile(host_memory_gb=Conclusion(0.4, Confidence.LOW, question="How large is it?")).as_json()
    assert (document["host_memory_gb"], document["unknown"]) == (0.4, {"host_memory_gb": "How large is it?"})


def test_every_field_is_in_the_json_also_of_an_empty_profile() -> None:
    document = Profile().as_json()
    assert {"frameworks", "gpu", "gpus", "gpu_memory_gb", "runtime_hours", "parameters", "interruptible"} <= set(
        document
    )
    assert document["evidence"] == {}


def test_memory_is_the_sum_of_its_parts_and_told_in_gigabytes() -> None:
    memory = Memory(1e9, 2e9, 3e9, 4e9, 0.5e9)
    assert memory.total == 10.5e9
    assert plain(memory) == {
        "weights_gb": 1.0, "gradients_gb": 2.0, "optimizer_gb": 3.0, "activations_gb": 4.0, "workspace_gb": 0.5,
        "sharded_gb": 0.0,
    }  # fmt: skip


def test_values_of_our_own_have_a_json_form_and_others_have_none() -> None:
    assert plain(Dataset("mnist", 60_000, 0.011)) == {"name": "mnist", "samples": 60_000, "gb": 0.011}
    assert plain(1 / 3) == 0.333333
    assert plain(("a", GpuNeed.NONE)) == ["a", "none"]
    with pytest.raises(TypeError):
        plain(object())


@pytest.mark.parametrize(("precision", "size"), [(Precision.FP32, 4), (Precision.BF16, 2), (Precision.INT4, 0.5)])
def test_a_precision_knows_its_size(precision: Precision, size: float) -> None:
    assert precision.bytes == size


def test_evidence_reads_like_a_place_in_a_file() -> None:
    assert str(LINE) == "train.py:3: model.cuda()"
