"""Sizes against torch itself: what a step of each model of the zoo keeps, counted under FakeTensorMode.

Not measured on a GPU: what is counted is what autograd saves, with weights, gradients and Adam's two states.
"""

from __future__ import annotations

import statistics

import pytest
from tests.analysis.oracle.torch_counts import Counts, ask_torch
from tests.analysis.oracle.zoo import TAIL, ZOO

from crucible.analysis import Sources, analyse
from crucible.core.routing.profile import Memory, Profile

PARAMETERS, MEDIAN, UNDER = 0.05, 0.15, 0.05


@pytest.fixture(scope="module")
def counted() -> Counts:
    return ask_torch({"models": ZOO, "tensors": "", "operations": []})["models"]


def read(name: str) -> Profile:
    return analyse(Sources({"train.py": (ZOO[name] + TAIL).encode()}, "train.py"))


def held(memory: Memory) -> float:
    return memory.weights + memory.gradients + memory.optimizer + memory.activations


@pytest.mark.timeout(1500)
def test_parameters_are_those_that_torch_counts(counted: Counts) -> None:
    for name, truth in counted.items():
        found = read(name).parameters.value
        assert found == pytest.approx(truth["parameters"], rel=PARAMETERS), name


@pytest.mark.timeout(1500)
def test_activations_and_states_are_near_and_hardly_ever_below(counted: Counts) -> None:
    errors: dict[str, float] = {}
    for name, truth in counted.items():
        memory = read(name).memory.value
        assert memory is not None, name
        errors[name] = held(memory) / (truth["saved"] + truth["states"]) - 1
    for name, error in sorted(errors.items(), key=lambda row: row[1]):
        print(f"{error:+8.2%}  {name}")
    median = statistics.median(abs(error) for error in errors.values())
    under = sum(error < 0 for error in errors.values()) / len(errors)
    print(f"{len(errors)} models, not measured on a GPU: median error {median:.2%}, under-estimated {under:.1%}")
    rule = [truth["states"] / (truth["saved"] + truth["states"]) - 1 for truth in counted.values()]
    print(f"four times the parameters: median error {statistics.median(map(abs, rule)):.2%}, all under-estimated")
    assert median < statistics.median(map(abs, rule))
    assert median < MEDIAN
    assert under < UNDER
