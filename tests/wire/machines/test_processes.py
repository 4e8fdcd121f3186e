from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from signal import SIGKILL

from crucible.wire.machines.processes import group_members, processes_with_variable
from crucible.wire.process import Process, find_process

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
