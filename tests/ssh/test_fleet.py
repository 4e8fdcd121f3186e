"""Many jobs over several hosts and this computer at once, while hosts come and go."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.harness import Deployment
from tests.ssh.sshd import Network, SshHost, until
from tests.ssh.test_jobs import masters

JOBS = 40
CODE = """\
import os, time
print("run", os.getpid(), flush=True)
time.sleep(2)
print("end", flush=True)
"""


@pytest.fixture
def hosts(network: Network) -> Iterator[list[SshHost]]:
    made = [network.add(f"gpu{number}") for number in (1, 2, 3)]
    yield made
    for host in made:
        host.stop()


@pytest.fixture
def deployment(network: Network, hosts: list[SshHost], tmp_path: Path) -> Iterator[Deployment]:
    env = {
        "CRUCIBLE_BACKENDS": "local,ssh",
        "CRUCIBLE_SSH_HOSTS": ",".join(host.name for host in hosts),
        "CRUCIBLE_SSH_CONFIG": str(network.config),
    }
    with Deployment(tmp_path, env) as started:
        yield started


@pytest.mark.timeout(400)
def test_every_job_completes_once_while_hosts_are_cut_off_and_killed(
    deployment: Deployment, hosts: list[SshHost], network: Network
) -> None:
    spec = {
        "backend": "ssh",
        "fallback": ["local"],
        "command": ["python3", "-c", CODE],
        "resources": {"cpus": 1},
        "retries": {"wait_seconds": 1},
    }
    jobs = [deployment.submit(spec) for _ in range(JOBS)]
    cut, killed, _ = hosts

    def ended() -> int:
        return sum(deployment.job(job)["status"] == "completed" for job in jobs)

    until(lambda: ended() >= 6, 90)
    cut.cut()
    killed.kill()
    until(lambda: ended() >= 16, 120)
    cut.join()
    killed.start()
    views = [deployment.wait(job, 200) for job in jobs]
    assert Counter(view["status"] for view in views) == {"completed": JOBS}
    for view in views:
        log = deployment.log(view["id"], view["attempts"][-1]["number"])
        assert (log.count(b"run "), log.count(b"end\n")) == (1, 1), log
        assert sum(attempt["reason"] == "completed" for attempt in view["attempts"]) == 1, view["attempts"]
    assert {attempt["backend"] for view in views for attempt in view["attempts"]} == {"local", "ssh"}
    deployment.stop()
    deployment.start()
    until(lambda: not any(host.processes() for host in hosts) and not masters(network), 90)
    assert [host.files_left() for host in hosts] == [[], [], []]
    assert [host.mounts_left() for host in hosts] == [[], [], []]


def test_the_same_cpus_are_never_sold_twice(network: Network, tmp_path: Path) -> None:
    """A host without a machine id of its own is this computer, which `local` offers too."""
    host = network.add("here", machine_id=None, boot_id=None)
    env = {"CRUCIBLE_BACKENDS": "local,ssh", "CRUCIBLE_SSH_HOSTS": "here", "CRUCIBLE_SSH_CONFIG": str(network.config)}
    code = "import time; print(time.time()); time.sleep(1.5); print(time.time())"
    with Deployment(tmp_path, env) as deployment:
        spec = {"command": ["python3", "-c", code], "resources": {"cpus": os.cpu_count()}}
        backends = [("ssh", "local"), ("local", "ssh")] * 3
        jobs = [deployment.submit({**spec, "backend": first, "fallback": [then]}) for first, then in backends]
        views = [deployment.wait(job, 90) for job in jobs]
        assert Counter(view["status"] for view in views) == {"completed": len(jobs)}
        times = sorted(tuple(map(float, deployment.log(job).split())) for job in jobs)
        assert all(end <= start for (_, end), (start, _) in pairwise(times)), times
        assert {view["attempts"][0]["backend"] for view in views} == {"local", "ssh"}
    host.stop()
