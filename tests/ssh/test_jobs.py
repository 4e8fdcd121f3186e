"""Jobs on an ssh host, with a real server: they survive the server, cut links and the end of the host."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.harness import Deployment, View
from tests.ssh.sshd import Network, SshHost, until

STEPS = """\
import os, time
for step in range({steps}):
    print("step", step, flush=True)
    time.sleep(0.2)
print("user", os.environ.get("USER"), "home", os.path.expanduser("~"))
"""


@pytest.fixture
def host(network: Network, request: pytest.FixtureRequest) -> Iterator[SshHost]:
    """A host for one test. Its parameter: more lines of its sshd_config."""
    made = network.add(f"box{len(network.hosts)}", sshd=getattr(request, "param", ""))
    yield made
    made.stop()


@pytest.fixture
def deployment(network: Network, host: SshHost, tmp_path: Path) -> Iterator[Deployment]:
    env = {"CRUCIBLE_BACKENDS": "ssh", "CRUCIBLE_SSH_HOSTS": host.name, "CRUCIBLE_SSH_CONFIG": str(network.config)}
    with Deployment(tmp_path, env) as started:
        yield started
    until(lambda: not masters(network))


def masters(network: Network) -> list[int]:
    """Return the pids of the masters of ssh on this computer."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if command[:1] == ["ssh"] and str(network.config) in command and "ControlMaster=yes" in command:
                found.append(process.pid)
    return found


def submit(deployment: Deployment, steps: int = 5, **more: object) -> str:
    return deployment.submit({"backend": "ssh", "command": ["python3", "-c", STEPS.format(steps=steps)], **more})


def printed(deployment: Deployment, job: str, step: int) -> bool:
    return f"step {step}\n".encode() in deployment.log(job)


def check_ran_once(view: View, log: bytes, steps: int) -> None:
    """Check that the job completed in one attempt, and that its program ran from start to end, once."""
    assert (view["status"], len(view["attempts"])) == ("completed", 1), view
    assert [line for line in log.splitlines() if line.startswith(b"step")] == [b"step %d" % n for n in range(steps)]


@pytest.mark.parametrize("host", ["", "AllowStreamLocalForwarding no\n", "MaxSessions 1\n"], indirect=True)
def test_a_job_runs_as_the_user_there_and_leaves_nothing(
    deployment: Deployment, host: SshHost, network: Network
) -> None:
    jobs = [submit(deployment, resources={"cpus": 1}) for _ in range(2)]
    for job in jobs:
        check_ran_once(deployment.wait(job), log := deployment.log(job), 5)
        assert b"user ann home /home/ann" in log
    deployment.stop()
    deployment.start()  # what a stop had no time for, the next start does
    until(lambda: not host.processes() and not masters(network), 60)
    assert host.mounts_left() == []
    assert host.files_left() == []


def test_a_job_survives_a_killed_server(deployment: Deployment, host: SshHost) -> None:
    job = submit(deployment, 30)
    until(lambda: printed(deployment, job, 2))
    deployment.kill()
    deployment.start()
    check_ran_once(deployment.wait(job), deployment.log(job), 30)


def test_a_job_survives_a_stopped_server_and_its_ended_tunnel(
    deployment: Deployment, host: SshHost, network: Network
) -> None:
    job = submit(deployment, 30)
    until(lambda: printed(deployment, job, 2))
    deployment.stop()
    assert masters(network) == []
    deployment.start()
    check_ran_once(deployment.wait(job), deployment.log(job), 30)


def test_a_server_that_moves_finds_its_jobs(deployment: Deployment, host: SshHost, network: Network) -> None:
    """Its state folder comes to another path, so socket, control sockets and ports are others."""
    job = submit(deployment, 50)
    until(lambda: printed(deployment, job, 2))
    deployment.kill()
    for pid in masters(network):  # they would end with the computer that the server left
        os.kill(pid, 9)
    moved = deployment.home.with_name("moved")
    deployment.home.rename(moved)
    deployment.home = moved
    deployment.env["CRUCIBLE_HOME"] = str(moved)
    deployment.start()
    check_ran_once(deployment.wait(job), deployment.log(job), 50)


def test_a_host_that_is_cut_off_and_returns_keeps_its_job(deployment: Deployment, host: SshHost) -> None:
    job = submit(deployment, 60)
    until(lambda: printed(deployment, job, 2))
    host.cut()
    until(lambda: "not answer" in str(deployment.get("/api/v1/backends")), 60)
    host.join()
    check_ran_once(deployment.wait(job, 120), deployment.log(job), 60)


def test_a_host_that_restarts_comes_back_as_the_same_machine(deployment: Deployment, host: SshHost) -> None:
    """The processes are gone with the host, so the attempt is lost, and the job runs again on the same machine."""
    job = submit(deployment, 20, retries={"wait_seconds": 1})
    until(lambda: printed(deployment, job, 2))
    host.restart()
    view = deployment.wait(job, 120)
    assert view["status"] == "completed", view
    assert len(view["attempts"]) == 2
    assert len({attempt["machine"] for attempt in view["attempts"]}) == 1


def test_a_command_runs_inside_a_job(deployment: Deployment, host: SshHost) -> None:
    """The agent opens the session through its tunnel."""
    job = submit(deployment, 100)
    until(lambda: printed(deployment, job, 2))
    done = deployment.cli("exec", job, "--", "sh", "-c", "echo from $(whoami)")
    assert (done.returncode, done.stdout) == (0, "from ann\n"), done.stderr
    deployment.cancel(job)
    deployment.wait(job)


def test_a_host_is_connected_used_and_disconnected_by_commands(network: Network, host: SshHost, tmp_path: Path) -> None:
    with Deployment(tmp_path, {"CRUCIBLE_BACKENDS": "local"}) as deployment:
        connect = ("backends", "connect", "ssh", "--config", str(network.config), "--yes")
        refused = deployment.cli(*connect, "--host", "-oProxyCommand=touch /tmp/x")
        assert refused.returncode == 2
        assert "not the name of a host" in refused.stderr
        connected = deployment.cli(*connect, "--host", host.name)
        assert connected.returncode == 0, connected.stdout + connected.stderr
        assert host.fingerprint in connected.stderr
        check_ran_once(deployment.wait(job := submit(deployment)), deployment.log(job), 5)
        again = deployment.cli("backends", "check", "ssh")
        assert (again.returncode, host.fingerprint in again.stdout + again.stderr) == (0, True)
        gone = deployment.cli("backends", "disconnect", "ssh", "--yes")
        assert gone.returncode == 0, gone.stdout + gone.stderr
        until(lambda: not host.processes() and not masters(network), 60)
        until(lambda: not (host.disk / ".crucible").exists(), 60)
