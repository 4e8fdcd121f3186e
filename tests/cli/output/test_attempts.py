"""Text about where an attempt runs."""

from __future__ import annotations

import pytest

from crucible.cli.output.attempts import format_attempt_offer
from crucible.core.views.jobs import AttemptView


@pytest.mark.parametrize(
    ("attempt", "text"),
    [
        ({"backend": "local", "instance_type": "this computer", "region": "here"}, "local"),
        ({"backend": "ssh", "instance_type": "gpu1", "region": "gpu1", "market": "on_demand"}, "ssh gpu1"),
        (
            {"backend": "aws", "instance_type": "g5.xlarge", "region": "us-east-1", "market": "spot"},
            "aws spot g5.xlarge in us-east-1",
        ),
        ({"backend": "sky", "instance_type": "s1", "region": "up", "simulated": True}, "sky s1 in up (simulated)"),
    ],
)
def test_where_an_attempt_runs(attempt: dict[str, object], text: str) -> None:
    assert format_attempt_offer(AttemptView(number=1, **attempt)) == text  # type: ignore[arg-type]
