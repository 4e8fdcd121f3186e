from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from crucible.wire.files.locks import hold_lock
from crucible.wire.process import is_locked


class TestLocks:
    def test_a_lock_is_seen_while_it_is_held(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        assert not is_locked(path)
        with hold_lock(path, 0):
            assert is_locked(path)
        assert not is_locked(path)

    def test_a_lock_ends_with_its_process(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        lock = f"import fcntl, signal; f = open({str(path)!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX)"
        command = [sys.executable, "-c", f"{lock}; print(flush=True); signal.pause()"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
            assert started.stdout is not None
            started.stdout.readline()
            assert is_locked(path)
            started.kill()
            started.wait()
            assert not is_locked(path)

    def test_who_waits_too_long_is_told(self, tmp_path: Path) -> None:
        with hold_lock(tmp_path / "lock", 0), pytest.raises(TimeoutError), hold_lock(tmp_path / "lock", 0.05):
            pass

    def test_an_error_inside_lets_the_lock_go(self, tmp_path: Path) -> None:
        with pytest.raises(KeyError), hold_lock(tmp_path / "lock", 0):
            raise KeyError
        assert not is_locked(tmp_path / "lock")

    def test_a_lock_in_a_removed_folder_cannot_be_had(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError), hold_lock(tmp_path / "gone" / "lock", 0):
            pass

    def test_the_lock_of_a_removed_file_does_not_count(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        with hold_lock(path, 0):
            path.unlink()
            with hold_lock(path, 0):
                assert is_locked(path)

    def test_looking_does_not_take_it(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        path.touch()
        assert not is_locked(path)
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
