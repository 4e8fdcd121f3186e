"""The lock of a state folder: held once, whatever happens to the lock file, and lost with the folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crucible.server.folder_lock import AlreadyRunning, StateFolderLost, lock_folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir()
    return path


def test_one_holder_at_a_time(home: Path) -> None:
    with lock_folder(home) as lock:
        lock.check()
        with pytest.raises(AlreadyRunning), lock_folder(home):
            pass
    with lock_folder(home):
        pass


def test_a_removed_lock_file_admits_nobody(home: Path) -> None:
    with lock_folder(home) as lock:
        (home / "server.lock").unlink()
        with pytest.raises(AlreadyRunning), lock_folder(home):
            pass
        with pytest.raises(StateFolderLost, match=r"server\.lock"):
            lock.check()


def test_a_replaced_lock_file_is_noticed(home: Path) -> None:
    with lock_folder(home) as lock:
        (home / "server.lock").rename(home / "old")
        (home / "server.lock").touch()
        with pytest.raises(StateFolderLost):
            lock.check()


def test_a_removed_folder_is_noticed_and_not_made_anew(home: Path) -> None:
    with lock_folder(home) as lock:
        shutil.rmtree(home)
        with pytest.raises(StateFolderLost):
            lock.check()
        assert not home.exists()
        home.mkdir()
        with pytest.raises(StateFolderLost):
            lock.check()


def test_a_copy_has_another_identity(home: Path) -> None:
    with lock_folder(home) as lock:
        copy = home.with_name("copy")
        shutil.copytree(home, copy)
        with lock_folder(copy) as other:
            assert other.identity != lock.identity
