from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest

from crucible.wire.machines.processes import group_members, locked, processes_with_variable
from crucible.wire.process import Process, find_process, is_locked

WAIT = "import signal; print(flush=True); signal.pause()"


@contextlib.contextmanager
def waiting(code: str = WAIT, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process in its own session that is ready."""
    command = [sys.executable, "-c", code]
    environ = {**os.environ, **variables}
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, env=environ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)


def named(pid: int) -> Process:
    found = find_process(pid)
    assert found is not None
    return found


class TestFinding:
    def test_a_group_is_the_leader_and_its_children(self) -> None:
        start = "subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])"
        with waiting(f"import subprocess, sys; {start}; {WAIT}") as started, waiting() as other:
            group = {process.pid for process in group_members(named(started.pid))}
            assert started.pid in group
            assert len(group) == 2
            assert other.pid not in group

    def test_a_group_whose_leader_has_ended_is_not_trusted(self) -> None:
        assert group_members(Process(os.getpid(), "1")) == frozenset()

    def test_processes_by_a_variable(self) -> None:
        with waiting(CRUCIBLE_ATTEMPT_ID="att-1") as one, waiting(CRUCIBLE_ATTEMPT_ID="att-10"):
            assert processes_with_variable("CRUCIBLE_ATTEMPT_ID", ["att-1"]) == {named(one.pid)}
            assert processes_with_variable("CRUCIBLE_ATTEMPT_ID", []) == frozenset()


class TestLocks:
    def test_a_lock_is_seen_while_it_is_held(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        assert not is_locked(path)
        with locked(path, 0):
            assert is_locked(path)
        assert not is_locked(path)

    def test_a_lock_ends_with_its_process(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        code = f"import fcntl, signal; f = open({str(path)!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
        with waiting(code + WAIT) as started:
            assert is_locked(path)
            started.kill()
            started.wait()
            assert not is_locked(path)

    def test_who_waits_too_long_is_told(self, tmp_path: Path) -> None:
        with locked(tmp_path / "lock", 0), pytest.raises(TimeoutError), locked(tmp_path / "lock", 0.05):
            pass

    def test_an_error_inside_lets_the_lock_go(self, tmp_path: Path) -> None:
        with pytest.raises(KeyError), locked(tmp_path / "lock", 0):
            raise KeyError
        assert not is_locked(tmp_path / "lock")

    def test_a_lock_in_a_removed_folder_cannot_be_had(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError), locked(tmp_path / "gone" / "lock", 0):
            pass

    def test_the_lock_of_a_removed_file_does_not_count(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        with locked(path, 0):
            path.unlink()
            with locked(path, 0):
                assert is_locked(path)

    def test_looking_does_not_take_it(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        path.touch()
        assert not is_locked(path)
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
