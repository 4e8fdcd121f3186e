"""Limits hold: memory, time, CPU, and the length of a line. What they did is told."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from tests.e2e.support import MiB, wait_for
from tests.harness import Deployment, View, python, shell, until

GREEDY = "kept = []\nfor _ in range(64): kept.append(bytearray(b'x' * (16 * 1024 * 1024)))\nprint('all of it')"
BUSY = """
    import json, multiprocessing, os, threading, time

    def spin(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass

    if __name__ == "__main__":
        spin(0.5)  # what the group saved up before it was throttled
        begin, used = time.monotonic(), sum(os.times()[:4])
        child = multiprocessing.get_context("fork").Process(target=spin, args=(4.5,))
        threads = [threading.Thread(target=spin, args=(4.5,)) for _ in range(2)]
        for one in (child, *threads):
            one.start()
        for one in (child, *threads):
            one.join()
        print(json.dumps([sum(os.times()[:4]) - used, time.monotonic() - begin]))
"""


def test_over_memory(crucible: Deployment) -> None:
    spec = python(GREEDY, resources={"cpus": 1, "memory_bytes": 128 * MiB}, retries={"user": 2})
    job = crucible.submit(spec)
    view = crucible.wait(job)
    assert (view["status"], view["reason"]["code"]) == ("failed", "out_of_memory")
    assert "--memory" in view["reason"]["advice"]
    assert len(view["attempts"]) == 1
    assert b"all of it" not in crucible.log(job)
    assert view["attempts"][0]["facts"]["exited"]["peak_memory"] <= 160 * MiB


def test_within_memory(crucible: Deployment) -> None:
    spec = python("print(len(bytes(64 * 1024 * 1024)))", resources={"cpus": 1, "memory_bytes": 128 * MiB})
    assert crucible.wait(crucible.submit(spec))["status"] == "completed"


def test_over_time(crucible: Deployment) -> None:
    spec = shell("echo begun; sleep 60", resources={"seconds": 2}, retries={"user": 2})
    job = crucible.submit(spec)
    view = crucible.wait(job)
    assert (view["status"], view["reason"]["code"]) == ("failed", "time_limit")
    assert "--time" in view["reason"]["advice"]
    assert len(view["attempts"]) == 1
    assert crucible.log(job) == b"begun\n"


def test_over_time_though_it_ignores_the_signal(crucible: Deployment) -> None:
    stubborn = shell("trap '' TERM; echo begun; while :; do sleep 0.1; done", resources={"seconds": 1})
    view = crucible.wait(crucible.submit({**stubborn, "grace_seconds": 0.5}))
    assert (view["status"], view["reason"]["code"]) == ("failed", "time_limit")


def test_half_a_cpu(crucible: Deployment) -> None:
    job = crucible.submit(python(dedent(BUSY), resources={"cpus": 0.5, "memory_bytes": 256 * MiB}))
    view = crucible.wait(job)
    enforced = view["attempts"][0]["facts"]["started"]["limits"].partition("; not enforced")[0]
    if "cgroup" not in enforced or "CPU" not in enforced:
        pytest.skip(f"fractions of a CPU cannot be enforced here: {enforced}")
    used, wall = json.loads(crucible.log(job))
    assert wall >= 4
    assert used / wall <= 0.55


def test_the_small_tier(crucible: Deployment) -> None:
    job = crucible.submit(python("print('ok')", tier="CPU_SMALL"))
    view = crucible.wait(job)
    assert (view["status"], view["tier"]) == ("completed", "CPU_SMALL")
    size = view["resources"]
    assert (size["cpus"], size["memory_bytes"], size["seconds"]) == (0.5, 512 * MiB, 30)
    assert view["attempts"][0]["allocation"]["cpus"] == 0.5


def test_a_wish_wins_over_its_tier(crucible: Deployment) -> None:
    job = crucible.submit(shell("true", tier="cpu-small", resources={"memory_bytes": 64 * MiB}))
    size = crucible.wait(job)["resources"]
    assert (size["cpus"], size["memory_bytes"]) == (0.5, 64 * MiB)


def test_two_hundred_megabytes_on_one_line(crucible: Deployment, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    assert crucible.server is not None
    before = _peak(crucible.server.pid)
    job = crucible.submit(
        shell(f"echo before; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo after; {wait_for(gate)}")
    )
    until(lambda: crucible.log(job).endswith(b"after\n"), what="the line after the long one")
    assert _peak(_runner(crucible, crucible.job(job))) < 150 * MiB
    gate.touch()
    assert crucible.wait(job)["status"] == "completed"
    assert _peak(crucible.server.pid) - before < 60 * MiB
    first, long, last = crucible.log(job).splitlines()
    assert (first, last) == (b"before", b"after")
    kept, _, mark = long.partition(" …[".encode())
    assert set(kept) == {ord("x")}
    assert mark == f"line cut: {200_000_000 - len(kept)} bytes left out]".encode()


def _runner(crucible: Deployment, view: View) -> int:
    attempt = view["attempts"][0]["id"]
    (file,) = crucible.home.glob(f"machines/*/attempts/{attempt}-0/runner.json")
    return int(json.loads(file.read_text())["pid"])


def _peak(pid: int) -> int:
    """The most memory that the process ever had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
