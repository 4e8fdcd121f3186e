"""What tells a file or folder from another one at the same path."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from crucible.wire.files.identity import identity, leads_to


def test_a_path_leads_to_what_is_there_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    known = (tmp_path / "a").stat()
    assert leads_to(tmp_path / "a", known)
    (tmp_path / "a").rename(tmp_path / "moved")
    assert not leads_to(tmp_path / "a", known)
    (tmp_path / "a").symlink_to(tmp_path / "moved")
    assert leads_to(tmp_path / "a", known)


def test_a_copy_is_another(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    shutil.copy2(tmp_path / "a", tmp_path / "b")
    known = (tmp_path / "a").stat()
    assert not leads_to(tmp_path / "b", known)
    assert not leads_to(tmp_path / "a" / "x", known)
    assert identity(known) != identity((tmp_path / "b").stat())


def test_what_cannot_be_found_out_is_up_to_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tmp_path.stat()

    def fail(path: Path) -> os.stat_result:
        raise OSError(errno.EIO, "bad disk")

    monkeypatch.setattr("crucible.wire.files.identity.os.stat", fail)
    assert not leads_to(tmp_path, known)
    assert leads_to(tmp_path, known, if_unknown=True)
