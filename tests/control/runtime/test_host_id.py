from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crucible.control.db import NetworkFileSystem
from crucible.control.runtime.host_id import MARK, read_host_id


def test_a_folder_keeps_its_mark_and_others_have_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    mine = read_host_id(tmp_path / "a")
    assert read_host_id(tmp_path / "b" / ".." / "a") == mine
    assert read_host_id(tmp_path / "b").mark != mine.mark
    assert [path.name for path in (tmp_path / "a").iterdir()] == [MARK]


def test_several_that_mark_it_at_once_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        marks = list(pool.map(lambda _: read_host_id(tmp_path).mark, range(8)))
    assert len(set(marks)) == 1


def test_a_folder_that_several_computers_see_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NetworkFileSystem, match="take them for lost") as refused:
        read_host_id(tmp_path, mounts="27 1 254:0 / / rw - nfs4 server:/ rw\n")
    assert "CRUCIBLE_LOCAL_FOLDER" in refused.value.fix
    assert not list(tmp_path.iterdir())
