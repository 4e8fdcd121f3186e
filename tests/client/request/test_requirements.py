from __future__ import annotations

from typing import Any

import pytest

from crucible import Requirements
from crucible.client.request.requirements import Preferences
from crucible.core.compute.offers import Market
from crucible.core.errors import BadInput, UnknownName
from crucible.core.routing.plan_request import Goal, Objective

GiB = 1024**3


def test_what_the_documents_ask_for() -> None:
    needs = Requirements(
        gpu_memory_gb=16,
        duration_hours_estimated=3,
        checkpoint_frequency_minutes=30,
        interruptible=True,
        max_cost_usd=10.00,
    )
    fields, goal = needs.read()
    assert fields == {
        "resources": {"gpus": 1, "gpu_memory_bytes": 16 * GiB},
        "market": Market.SPOT,
        "spot_fallback": True,
        "max_cost_usd": 10.0,
        "env": {"CHECKPOINT_FREQUENCY_MINUTES": "30"},
    }
    assert goal == Goal(hours=3, interruptible=True)


def test_nothing_said_is_nothing_required() -> None:
    needs = Requirements()
    assert needs.read() == ({}, Goal())


def test_sizes_in_units_of_a_job() -> None:
    needs = Requirements(cpus=2, memory_gb=1.5, gpus=2, time_limit_hours=0.5)
    wanted = {"cpus": 2, "memory_bytes": int(1.5 * GiB), "gpus": 2, "seconds": 1800}
    assert needs.read()[0] == {"resources": wanted}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"gpu_memory_gb": -1}, "gpu_memory_gb must be at least 0"),
        ({"gpu_memory_gb": "16"}, "gpu_memory_gb must be a number"),
        ({"gpu_memory_gb": True}, "gpu_memory_gb must be a number"),
        ({"gpu_memory_gb": float("nan")}, "gpu_memory_gb must be a number"),
        ({"max_cost_usd": float("inf")}, "max_cost_usd must be a number"),
        ({"max_cost_usd": -0.01}, "max_cost_usd must be at least 0"),
        ({"duration_hours_estimated": 0}, "must be more than 0"),
        ({"checkpoint_frequency_minutes": 0}, "must be more than 0"),
        ({"gpus": 1.5}, "gpus must be a whole number"),
        ({"gpus": 10**9}, "gpus must be at most"),
        ({"memory_gb": 10**9}, "memory_gb must be at most"),
        ({"cpus": 0}, "cpus must be at least 0.01"),
        ({"interruptible": "yes"}, "interruptible must be True or False"),
        ({"tier": 3}, "tier must be text"),
        ({"gpus": 0, "gpu_memory_gb": 16}, "contradict"),
        ({"time_limit_hours": 1, "duration_hours_estimated": 3}, "less than duration_hours_estimated"),
    ],
)
def test_what_makes_no_sense_is_told_with_its_field_and_a_fix(said: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words) as raised:
        Requirements(**said)
    assert raised.value.fix
    assert raised.value.data["field"] in said


def test_a_tier_nobody_knows_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="GPU_SMALL"):
        Requirements(tier="gpu_smal")


def test_requirements_may_be_a_table() -> None:
    assert Requirements.from_value({"gpus": 2}) == Requirements(gpus=2)
    assert Requirements.from_value(None) == Requirements()
    with pytest.raises(UnknownName, match="gpu_memory_gb"):
        Requirements.from_value({"gpu_memory": 16})
    with pytest.raises(BadInput, match="requirements must be a Requirements"):
        Requirements.from_value(16)


def test_preferences_as_the_documents_write_them() -> None:
    said = {"optimize_for": "speed", "allowed_backends": None}
    assert Preferences.from_value(said) == Preferences(Objective.SPEED, None)
    assert Preferences.from_value({"allowed_backends": ["local", "local"]}).allowed_backends == ("local",)
    assert Preferences.from_value({"allowed_backends": "local"}).allowed_backends == ("local",)
    assert Preferences.from_value(None) == Preferences(Objective.COST, None)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"optimise_for": "cost"}, "optimize_for"),
        ({"optimize_for": "fame"}, "Known: balanced, cost, deadline, speed"),
        ({"optimize_for": 3}, "optimize_for must be text"),
        ({"allowed_backends": []}, "names nothing"),
        ({"allowed_backends": [3]}, "allowed_backends must be text"),
        ({"allowed_backends": 3}, "must be a list of names"),
        ("cost", "preferences must be a table"),
    ],
)
def test_preferences_that_are_none(said: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Preferences.from_value(said)
