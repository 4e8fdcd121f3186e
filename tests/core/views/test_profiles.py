from __future__ import annotations

import json

from crucible.core.routing.profile import (
    Conclusion,
    Confidence,
    Dataset,
    Distribution,
    Evidence,
    GpuNeed,
    HostMemory,
    Memory,
    Profile,
)
from crucible.core.views.profiles import ProfileView

LINE = Evidence("train.py", 3, "model.cuda()")


def test_values_stand_by_name_and_evidence_beside_them() -> None:
    profile = Profile(
        frameworks=Conclusion(("torch",), Confidence.HIGH),
        gpu=Conclusion(GpuNeed.REQUIRED, Confidence.HIGH, (LINE,), False, "It says so."),
        distribution=Conclusion(Distribution.DDP, Confidence.HIGH),
        runtime_hours=Conclusion(question="How long?"),
        memory=Conclusion(Memory(1e9, 2e9, 3e9, 4e9, 0.5e9)),
        host_memory=Conclusion(HostMemory(1 / 3 * 1e9)),
        tf32_share=Conclusion(1 / 3),
        dataset=Conclusion(Dataset("mnist", 60_000, 0.011)),
        epochs=Conclusion(100, Confidence.LOW, (), True),
        notes=("It is short.",),
    )
    shown = json.loads(ProfileView.from_profile(profile).model_dump_json())
    assert {name: value for name, value in shown.items() if value} == {
        "frameworks": ["torch"],
        "gpu": "required",
        "distribution": "ddp",
        "memory": {
            "weights_gb": 1.0, "gradients_gb": 2.0, "optimizer_gb": 3.0, "activations_gb": 4.0, "workspace_gb": 0.5,
            "sharded_gb": 0.0,
        },
        "host_memory": {"base_gb": 0.333, "model_gb": 0.0, "data_gb": 0.0, "workers_gb": 0.0, "offloaded_gb": 0.0},
        "tf32_share": 0.333333,
        "dataset": {"name": "mnist", "samples": 60_000, "gb": 0.011},
        "epochs": 100,
        "confidence": {
            "frameworks": "high", "gpu": "high", "distribution": "high", "memory": "low", "host_memory": "low",
            "tf32_share": "low", "dataset": "low", "epochs": "low",
        },
        "assumed": ["epochs"],
        "evidence": {
            "frameworks": [],
            "gpu": [{"file": "train.py", "line": 3, "text": "model.cuda()"}],
            "distribution": [],
            "memory": [],
            "host_memory": [],
            "tf32_share": [],
            "dataset": [],
            "epochs": [],
        },
        "why": {"gpu": "It says so."},
        "unknown": {"runtime_hours": "How long?"},
        "notes": ["It is short."],
    }  # fmt: skip


def test_what_a_value_leaves_out_is_asked_for() -> None:
    shown = ProfileView.from_profile(
        Profile(host_memory_gb=Conclusion(0.4, Confidence.LOW, question="How large is it?"))
    )
    assert (shown.host_memory_gb, shown.unknown) == (0.4, {"host_memory_gb": "How large is it?"})


def test_every_conclusion_is_shown_also_of_an_empty_profile() -> None:
    empty = Profile()
    beside = {"confidence", "assumed", "evidence", "why", "unknown", "notes"}
    assert (
        set(ProfileView.from_profile(empty).as_json())
        == {*empty.conclusions(), *beside}
        == set(ProfileView.model_fields)
    )
