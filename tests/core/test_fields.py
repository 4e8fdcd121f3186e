from __future__ import annotations

import pytest

from crucible.core.fields import suggest_field
from crucible.core.job.spec import JobSpec
from crucible.core.routing.plan_request import PlanRequest


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (("nmae",), "Did you mean 'name'?"),
        (("resources", "memory"), "Did you mean 'memory_bytes'?"),
        (("data", 3, "qqq"), "There are name, source."),
        (("keep", "qqq"), "There are best, every, higher_is_better, latest."),
    ],
)
def test_what_was_meant_or_what_there_is(path: tuple[object, ...], said: str) -> None:
    assert suggest_field(JobSpec, path) == said
    assert suggest_field(PlanRequest, path) == said
    assert suggest_field(JobSpec | None, path) == said


def test_of_what_is_no_model_nothing_is_said() -> None:
    assert suggest_field(None, ("x",)) == suggest_field(dict[str, int], ("x", "y")) == ""
