"""Test limits, by the machine's own cgroups if it has them, and without cgroups everywhere."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crucible.agent.process.limits import (
    Confinement,
    Limiter,
    LimitsProbe,
    ProcessesRemain,
    RlimitLimiter,
    choose_limiter,
)
from crucible.agent.process.limits.cgroup1 import Cgroup1Limiter
from crucible.agent.process.limits.cgroup2 import Cgroup2Confinement
from crucible.agent.process.limits.files import Files

MB = 2**20
Start = Callable[..., "subprocess.Popen[bytes]"]

BUSY = "while True: pass"
IDLE = "import time; time.sleep(600)"
GREEDY = "import time; held = bytearray(400 * 2**20); print('held', flush=True); time.sleep(600)"
DAEMON = f"""
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        {IDLE}
    os._exit(0)
{IDLE}
"""


def real_cgroup1() -> Cgroup1Limiter | None:
    return Cgroup1Limiter.open(Files(), LimitsProbe().mounts()) if sys.platform == "linux" else None


def real_cgroup2() -> Path | None:
    """Return a writable folder of the real v2 hierarchy, with any controllers."""
    mount = LimitsProbe().mounts().get("") if sys.platform == "linux" else None
    return Path(mount.own) if mount is not None and os.access(Path(mount.own, "cgroup.procs"), os.W_OK) else None


@pytest.fixture
def attempt() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def start(attempt: str) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def run(confinement: Confinement, code: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            preexec_fn=confinement.enter,
            start_new_session=True,
            stdout=subprocess.PIPE,
            env={**os.environ, "CRUCIBLE_ATTEMPT_ID": attempt},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(params=["cgroup1", "rlimit"])
def limiter(request: pytest.FixtureRequest, tmp_path: Path) -> Limiter:
    if request.param == "rlimit":
        return RlimitLimiter(tmp_path / "limits")
    found = real_cgroup1()
    if found is None:
        pytest.skip("no writable cgroup v1 here")
    return found


@pytest.fixture
def cgroup1() -> Cgroup1Limiter:
    found = real_cgroup1()
    if found is None:
        pytest.skip("no writable cgroup v1 here")
    return found


def eventually(check: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def left_over(attempt: str) -> list[str]:
    command = ["find", "/sys/fs/cgroup", "-type", "d", "-name", attempt]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.split()


# What every limiter does.


def test_over_memory_is_killed_and_told(limiter: Limiter, attempt: str, start: Start) -> None:
    confinement = limiter.prepare(attempt, memory_bytes=100 * MB)
    process = start(confinement, GREEDY)
    assert eventually(lambda: confinement.tick() or process.poll() is not None)
    assert process.wait(10) == -signal.SIGKILL
    assert confinement.oom_killed()
    assert confinement.peak_memory() > 90 * MB
    confinement.remove()


def test_a_killed_child_takes_the_whole_attempt_with_it(limiter: Limiter, attempt: str, start: Start) -> None:
    confinement = limiter.prepare(attempt, memory_bytes=100 * MB)
    process = start(confinement, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {GREEDY!r}]); {IDLE}")
    assert eventually(confinement.tick)
    assert process.wait(10) == -signal.SIGKILL
    assert confinement.pids() == []
    confinement.remove()


def test_within_memory_nothing_happens(limiter: Limiter, attempt: str, start: Start) -> None:
    confinement = limiter.prepare(attempt, memory_bytes=2000 * MB)
    process = start(confinement, GREEDY)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    assert not confinement.tick()
    assert not confinement.oom_killed()
    assert 350 * MB < confinement.usage()[1] < 600 * MB
    confinement.kill_all()
    confinement.remove()


def test_kill_all_reaches_a_daemon_in_its_own_session(limiter: Limiter, attempt: str, start: Start) -> None:
    confinement = limiter.prepare(attempt)
    process = start(confinement, DAEMON)
    assert process.stdout is not None
    daemon = int(process.stdout.readline())
    assert os.getsid(daemon) != process.pid
    assert eventually(lambda: set(confinement.pids()) == {process.pid, daemon})
    confinement.kill_all()
    assert process.wait(10) == -signal.SIGKILL
    assert eventually(lambda: not alive(daemon))
    assert confinement.pids() == []
    confinement.remove()


def test_kill_all_and_remove_may_be_repeated(limiter: Limiter, attempt: str) -> None:
    confinement = limiter.prepare(attempt, memory_bytes=100 * MB, cpus=1, pids=10)
    confinement.kill_all()
    confinement.remove()
    confinement.remove()
    confinement.kill_all()
    assert (confinement.pids(), confinement.oom_killed()) == ([], False)
    assert limiter.find_left(attempt) is None


def test_what_was_left_is_found_again(limiter: Limiter, attempt: str, start: Start) -> None:
    assert limiter.find_left(attempt) is None
    confinement = limiter.prepare(attempt, memory_bytes=1000 * MB)
    process = start(confinement, IDLE)
    found = limiter.find_left(attempt)
    assert found is not None
    assert eventually(lambda: process.pid in found.pids())
    found.kill_all()
    assert process.wait(10) == -signal.SIGKILL
    found.remove()
    assert limiter.find_left(attempt) is None


def test_usage_counts_cpu_seconds(limiter: Limiter, attempt: str, start: Start) -> None:
    confinement = limiter.prepare(attempt)
    start(confinement, BUSY)
    assert eventually(lambda: confinement.usage()[0] > 0.2)
    confinement.kill_all()
    confinement.remove()


@pytest.mark.parametrize("bad", ["", "../x", "a/b", ".", ".hidden", "x" * 200])
def test_an_attempts_id_must_be_a_name(limiter: Limiter, bad: str) -> None:
    with pytest.raises(ValueError, match="not an attempt id"):
        limiter.prepare(bad)


# cgroup v1, for real.


def cpu_rate(confinement: Confinement, seconds: float) -> float:
    assert eventually(lambda: confinement.usage()[0] > 0.05)
    begin, before = time.monotonic(), confinement.usage()[0]
    assert eventually(lambda: time.monotonic() - begin >= seconds, seconds + 5)
    return (confinement.usage()[0] - before) / (time.monotonic() - begin)


def test_half_a_cpu_is_at_most_that(cgroup1: Limiter, attempt: str, start: Start) -> None:
    confinement = cgroup1.prepare(attempt, cpus=0.5)
    start(confinement, BUSY)
    assert cpu_rate(confinement, 3.0) <= 0.55
    confinement.kill_all()
    confinement.remove()


def test_two_processes_share_one_quota(cgroup1: Limiter, attempt: str, start: Start) -> None:
    confinement = cgroup1.prepare(attempt, cpus=0.5)
    start(confinement, BUSY)
    start(confinement, BUSY)
    assert eventually(lambda: len(confinement.pids()) == 2)
    assert cpu_rate(confinement, 2.0) <= 0.55
    confinement.kill_all()
    confinement.remove()


def test_number_of_processes_is_limited(cgroup1: Limiter, attempt: str, start: Start) -> None:
    confinement = cgroup1.prepare(attempt, pids=3)
    code = """
import os, time
made = 0
try:
    for _ in range(20):
        if os.fork() == 0: time.sleep(600)
        made += 1
except BlockingIOError: pass
print(made, flush=True)
"""
    process = start(confinement, code)
    assert process.stdout is not None
    assert process.stdout.readline() == b"2\n"
    confinement.kill_all()
    confinement.remove()


def test_a_fork_bomb_is_ended(cgroup1: Limiter, attempt: str, start: Start) -> None:
    confinement = cgroup1.prepare(attempt, pids=50, cpus=0.5)
    start(confinement, "import os\nwhile True:\n try: os.fork()\n except OSError: pass")
    assert eventually(lambda: len(confinement.pids()) > 20)
    confinement.kill_all()
    assert confinement.pids() == []
    confinement.remove()


def test_remove_refuses_while_processes_are_inside_and_then_leaves_nothing(
    cgroup1: Limiter, attempt: str, start: Start
) -> None:
    confinement = cgroup1.prepare(attempt, memory_bytes=500 * MB, cpus=1, pids=50)
    process = start(confinement, IDLE)
    assert eventually(lambda: process.pid in confinement.pids())
    assert len(left_over(attempt)) >= 3
    with pytest.raises(ProcessesRemain):
        confinement.remove()
    confinement.kill_all()
    process.wait(10)
    confinement.remove()
    assert left_over(attempt) == []


def test_limits_may_be_set_again_lower_and_higher(cgroup1: Limiter, attempt: str) -> None:
    for size in (100 * MB, 50 * MB, 200 * MB):
        confinement = cgroup1.prepare(attempt, memory_bytes=size)
    confinement.remove()


def test_v1_says_what_it_enforces(cgroup1: Limiter) -> None:
    assert cgroup1.describe().startswith("cgroup v1: enforced: memory")


# Watching from outside.


def test_watching_says_what_it_cannot_do(tmp_path: Path) -> None:
    text = RlimitLimiter(tmp_path).describe()
    assert "no usable cgroup" in text
    assert "not enforced: fractions of a CPU" in text


def test_watching_pins_to_whole_cpus_and_lowers_priority_for_fractions(
    tmp_path: Path, attempt: str, start: Start
) -> None:
    confinement = RlimitLimiter(tmp_path / "limits").prepare(attempt, cpus=0.5)
    code = "import os; print(len(os.sched_getaffinity(0)), os.nice(0), flush=True)"
    process = start(confinement, code)
    assert process.stdout is not None
    cpus, nice = process.stdout.readline().split()
    assert int(cpus) == 1
    assert int(nice) == min(19, os.nice(0) + 5)


def test_watching_remembers_an_out_of_memory_after_a_restart(tmp_path: Path, attempt: str, start: Start) -> None:
    limiter = RlimitLimiter(tmp_path / "limits")
    confinement = limiter.prepare(attempt, memory_bytes=50 * MB)
    start(confinement, GREEDY)
    assert eventually(confinement.tick)
    found = RlimitLimiter(tmp_path / "limits").find_left(attempt)
    assert found is not None
    assert found.oom_killed()
    assert found.peak_memory() > 50 * MB


# cgroup v2: the real hierarchy, without controllers.


def test_v2_for_real_kills_a_daemon(attempt: str, start: Start) -> None:
    base = real_cgroup2()
    if base is None:
        pytest.skip("no writable cgroup v2 here")
    folder = base / "crucible" / attempt
    Files().make(folder)
    confinement = Cgroup2Confinement(Files(), folder)
    process = start(confinement, DAEMON)
    assert eventually(lambda: len(confinement.pids()) == 2)
    assert eventually(lambda: confinement.usage()[0] > 0)
    confinement.kill_all()
    assert process.wait(10) == -signal.SIGKILL
    confinement.remove()
    assert left_over(attempt) == []


# Choosing.


def test_without_cgroups_it_watches(tmp_path: Path) -> None:
    limiter = choose_limiter(LimitsProbe(proc=str(tmp_path), folder=tmp_path / "limits"))
    assert isinstance(limiter, RlimitLimiter)


def test_a_read_only_hierarchy_is_not_taken(tmp_path: Path) -> None:
    class ReadOnly(Files):
        def make(self, path: Path) -> None:
            raise OSError(errno.EROFS, "read-only file system")

    probe = LimitsProbe(files=ReadOnly(), folder=tmp_path / "limits")
    assert isinstance(choose_limiter(probe), RlimitLimiter)


def test_the_machines_own_choice_works(attempt: str, start: Start, tmp_path: Path) -> None:
    limiter = choose_limiter(LimitsProbe(folder=tmp_path / "limits"))
    confinement = limiter.prepare(attempt, memory_bytes=500 * MB, cpus=1, pids=100)
    process = start(confinement, "print('in')")
    assert process.wait(20) == 0
    confinement.remove()


def test_a_table_of_mounts_may_name_folders_in_any_encoding(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(b"36 35 98:0 / /mnt/caf\xe9 rw - ext4 /dev/sda rw\n")
    assert os.fsencode(Files().read(table)) == table.read_bytes()
