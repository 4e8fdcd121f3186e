from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import crucible
from crucible.control.reconcile.crashpoints import NAMES, arm, crashpoint, disarm

USED = re.compile(r"""crashpoint\(\s*["']([^"']+)["']""")


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    disarm()


def test_every_name_is_used_and_every_use_is_named() -> None:
    sources = Path(crucible.__file__).parent.rglob("*.py")
    used = {name for path in sources for name in USED.findall(path.read_text("utf-8"))}
    assert used == NAMES


def test_reaching_a_point_does_nothing_until_it_is_armed() -> None:
    reached: list[str] = []
    crashpoint("submit.before_commit")
    arm("submit.before_commit", lambda: reached.append("there"))
    crashpoint("submit.after_commit")
    crashpoint("submit.before_commit")
    assert reached == ["there"]
    disarm()
    crashpoint("submit.before_commit")
    assert reached == ["there"]


def test_a_name_nobody_knows_cannot_be_armed() -> None:
    with pytest.raises(ValueError, match="no crash point"):
        arm("submit.sometime", lambda: None)
