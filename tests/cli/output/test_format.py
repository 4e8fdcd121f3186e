from __future__ import annotations

from crucible.cli.output.format import format_unconnected


def test_places_that_the_same_command_connects_are_named_together() -> None:
    why = "{} is not connected. Connect it: crucible up"
    reasons = [(name, why.format(name)) for name in ("lambda", "lambda", "modal")]
    assert list(format_unconnected(reasons)) == ["○ lambda and modal are not connected. Connect one: crucible up."]
    assert list(format_unconnected(reasons[:1])) == ["○ lambda is not connected. Connect it: crucible up."]
