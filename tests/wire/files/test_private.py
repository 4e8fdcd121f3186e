from __future__ import annotations

import os
from pathlib import Path

import pytest

from crucible.wire.files.private import why_not_private


@pytest.mark.parametrize(
    ("mode", "why"),
    [(0o700, ""), (0o500, ""), (0o710, "open to other users (mode 710)"), (0o702, "open to other users (mode 702)")],
)
def test_a_folder_is_private_by_its_mode(tmp_path: Path, mode: int, why: str) -> None:
    tmp_path.chmod(mode)
    assert why_not_private(tmp_path).endswith(why)
    assert bool(why_not_private(tmp_path)) == bool(why)


def test_a_folder_of_another_user_is_not_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert why_not_private(tmp_path, os.geteuid() + 1) == f"{tmp_path} belongs to another user"


def test_what_is_no_folder_is_not_private(tmp_path: Path) -> None:
    (tmp_path / "file").touch(mode=0o600)
    assert why_not_private(tmp_path / "file").endswith("is not a folder")
    assert why_not_private(tmp_path / "away").startswith("No such file")
