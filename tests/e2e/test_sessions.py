"""Sessions as people use them: exec, attach and ports, at real jobs on both places, through a real server."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.terminal import Terminal
from tests.harness import Deployment, alive, python, shell, until

from crucible.client import MLPlatform, SyncMLPlatform
from crucible.core.errors import Conflict, CrucibleError, TimedOut
from crucible.settings import load_settings

pytestmark = pytest.mark.timeout(180)

VALUE = "hf_0123456789abcdef"
SMALL = {"cpus": 0.25, "memory_bytes": 256 * 1024**2}
"""Several run side by side."""
SERVING = """\
import http.server, os, pathlib, signal, sys, threading
pathlib.Path("page.txt").write_bytes(bytes(range(256)) * 4000)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print("listens on", server.server_port, flush=True)
pathlib.Path("port").write_text(str(server.server_port))
server.serve_forever()
"""


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    with Terminal(tmp_path_factory.mktemp("sessions"), CRUCIBLE_BACKENDS="local,rehearsal") as terminal:
        terminal.crucible.start()
        terminal.ok("secrets", "set", "TOKEN", input=VALUE + "\n")
        yield terminal


@pytest.fixture(scope="module", params=["local", "rehearsal"])
def job(request: pytest.FixtureRequest, terminal: Terminal) -> str:
    """A job that serves pages until it is cancelled."""
    spec = python(SERVING, backend=request.param, secrets={"KEY": "TOKEN"}, env={"MINE": "yes"}, resources=SMALL)
    job = terminal.crucible.submit(spec)
    until(lambda: b"listens on" in terminal.crucible.log(job), 90, "the program")
    return job


@pytest.fixture
def platform(terminal: Terminal) -> Iterator[SyncMLPlatform]:
    with SyncMLPlatform(settings=load_settings(environ=terminal.crucible.env)) as platform:
        yield platform


def running(crucible: Deployment, text: str, **more: object) -> str:
    job = crucible.submit(shell(f"echo on; {text}", **{"resources": SMALL, **more}))
    until(lambda: crucible.log(job).startswith(b"on"), 60, "the program")
    return job


# exec


def test_a_command_runs_where_the_job_does(terminal: Terminal, job: str) -> None:
    done = terminal.run("exec", job, "--", "sh", "-c", "cat port; echo :$CRUCIBLE_JOB_ID:$MINE; echo no >&2; exit 7")
    port = terminal.crucible.log(job).split()[2].decode()
    assert (done.returncode, done.stdout, done.stderr) == (7, f"{port}:{job}:yes\n", "no\n")


def test_the_python_is_the_jobs(terminal: Terminal, job: str) -> None:
    done = terminal.run("exec", job, "--", "python", "-c", "import crucible, sys; print(sys.version_info[0])")
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_bytes_go_through_untouched(terminal: Terminal, job: str) -> None:
    content = bytes(range(256)) * 8192
    command = [sys.executable, "-m", "crucible", "exec", job, "--", "cat"]
    done = subprocess.run(
        command, env=terminal.crucible.env, input=content, capture_output=True, timeout=60, check=True
    )
    assert done.stdout == content


def test_secrets_are_there_and_not_shown(terminal: Terminal, job: str) -> None:
    done = terminal.run("exec", job, "--", "sh", "-c", "printf $KEY | wc -c; echo $KEY; echo $KEY >&2")
    assert (done.stdout, done.stderr) == (f"{len(VALUE)}\n***\n", "***\n")


def test_what_is_not_there_gives_127(terminal: Terminal, job: str) -> None:
    done = terminal.run("exec", "-n", job, "--", "no-such-thing")
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr.startswith("crucible: cannot run 'no-such-thing'")


def test_a_signal_gives_its_number(terminal: Terminal, job: str) -> None:
    assert terminal.run("exec", job, "--", "sh", "-c", "kill -TERM $$").returncode == 143


def test_a_program_that_has_not_begun_is_waited_for(terminal: Terminal, tmp_path: Path) -> None:
    """The job's Python answers only once the gate is there: until then its machine gets ready for it."""
    gate, slow = tmp_path / "gate", tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.05; done\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    spec = python("import time; time.sleep(1000)", environment={"interpreter": str(slow)}, resources=SMALL)
    job = terminal.crucible.submit(spec)
    terminal.crucible.phase(job, "starting", seconds=60)
    command = terminal.begin("exec", "-n", job, "--", "echo", "inside")
    assert command.stderr is not None
    assert "is still starting; waiting up to 30 seconds." in command.stderr.readline()
    gate.touch()
    out, err = command.communicate(timeout=60)
    assert (command.returncode, out, err) == (0, "inside\n", "")
    terminal.ok("cancel", job, "--yes")


def test_as_json(terminal: Terminal, job: str) -> None:
    done = terminal.run("exec", "--json", job, "--", "sh", "-c", "cat; exit 3", input="in")
    assert done.returncode == 3
    assert json.loads(done.stdout) == {"code": 3, "stdout": "in", "stderr": "", "job_ended": False}


def test_whoever_stops_reading_ends_it(terminal: Terminal, job: str) -> None:
    """As with any program: `crucible exec … | head`."""
    at = f"{sys.executable} -m crucible exec {job} --"
    text = f"{at} yes | head -1; exec 0<&-; {at} cat"
    done = subprocess.run(
        ["/bin/sh", "-c", text], env=terminal.crucible.env, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"y\n", b"")


def test_a_shell_in_a_terminal(terminal: Terminal, job: str) -> None:
    """Keys go through, Ctrl-C too, and the shell's code comes back."""
    pid, number = pty.fork()
    if pid == 0:
        env = {**terminal.crucible.env, "TERM": "xterm", "PS1": "> "}
        os.execve(sys.executable, [sys.executable, "-m", "crucible", "exec", "-it", job, "--", "/bin/sh"], env)
    seen = b""

    def see(text: bytes) -> None:
        nonlocal seen
        while text not in seen:
            seen += os.read(number, 65536)

    prompt = b"# " if os.getuid() == 0 else b"$ "
    see(prompt)
    os.write(number, b"test -t 0 && echo a t''ty; cat\n")
    see(b"a tty")
    os.write(number, b"typed\n")
    see(b"typed\r\ntyped\r\n")
    seen = b""
    os.write(number, b"\x03")
    see(prompt)
    os.write(number, b"exit 9\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    os.close(number)


def test_without_a_command_and_without_a_terminal(terminal: Terminal, job: str) -> None:
    done = terminal.run("exec", job, input="")
    assert done.returncode == 2
    assert "No command given." in done.stderr


def test_who_goes_has_what_he_ran_ended(terminal: Terminal, job: str) -> None:
    command = terminal.begin("exec", job, "--", "sh", "-c", "echo $$; exec sleep 1000")
    assert command.stdout is not None
    pid = int(command.stdout.readline())
    command.kill()
    command.wait()
    until(lambda: not alive(pid), 20, "the command to be hung up")


def test_the_server_that_goes_takes_its_sessions_along_and_not_the_job(tmp_path: Path) -> None:
    with Deployment(tmp_path) as crucible:
        job = running(crucible, "sleep 1000")
        command = subprocess.Popen(
            [sys.executable, "-m", "crucible", "exec", job, "--", "sh", "-c", "echo $$; exec sleep 1000"],
            env={**crucible.env, "CRUCIBLE_SERVER": crucible.discovery["url"], "CRUCIBLE_TOKEN": crucible.token},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert command.stdout is not None
        pid = int(command.stdout.readline())
        crucible.kill()
        _, said = command.communicate(timeout=20)
        assert (command.returncode, b"was disconnected" in said) == (9, True), said
        until(lambda: not alive(pid), 20, "the command to be hung up")
        crucible.start()
        assert crucible.job(job)["status"] == "running"


def test_the_end_of_the_job_ends_the_session(terminal: Terminal) -> None:
    job = running(terminal.crucible, "sleep 1000")
    command = terminal.begin("exec", job, "--", "sh", "-c", "echo $$; trap '' TERM HUP; while :; do sleep 0.1; done")
    assert command.stdout is not None
    pid = int(command.stdout.readline())
    terminal.ok("cancel", job)
    _, said = command.communicate(timeout=20)
    assert (command.returncode, "The job has ended" in said) == (137, True), said
    assert not alive(pid)
    done = terminal.run("exec", job, "--", "true")
    assert done.returncode == 5
    assert "has ended: it is cancelled" in done.stderr


def test_a_session_is_under_the_jobs_limits(terminal: Terminal) -> None:
    """Its CPUs: what the program may use, a session may."""
    job = running(terminal.crucible, "echo $$; exec sleep 1000")
    pid = until(lambda: terminal.crucible.log(job).split()[1:], 30, "its number")[0].decode()
    text = "grep Cpus_allowed_list /proc/self/status; cat /proc/self/cgroup"
    in_session = terminal.ok("exec", job, "--", "sh", "-c", text)
    status = Path(f"/proc/{pid}/status").read_text()
    assert next(line for line in status.splitlines() if "Cpus_allowed_list" in line) in in_session
    assert Path(f"/proc/{pid}/cgroup").read_text() in in_session
    terminal.ok("cancel", job)


def test_through_the_store_there_is_no_way_in(tmp_path: Path) -> None:
    with Deployment(tmp_path, {"CRUCIBLE_CHANNEL": "store"}) as crucible:
        job = running(crucible, "sleep 1000")
        with SyncMLPlatform(settings=load_settings(environ=crucible.env)) as platform:
            with pytest.raises(Conflict, match="machine cannot be reached") as refused:
                platform.job(job).exec(["true"])
            assert "store" in refused.value.why


# attach


def test_attach_shows_what_comes_and_returns_the_jobs_code(terminal: Terminal, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = running(terminal.crucible, f"until [ -e {gate} ]; do sleep 0.05; done; echo later; exit 4")
    attached = terminal.begin("attach", job)
    assert attached.stderr is not None
    assert "Running on local" in attached.stderr.readline()
    gate.touch()
    out, said = attached.communicate(timeout=30)
    assert (attached.returncode, out) == (4, "later\n"), said
    done = terminal.run("attach", job)
    assert (done.returncode, done.stdout) == (4, "")
    assert f"crucible logs {job[:4]}{job[-6:]}" in done.stderr


def test_attach_from_the_start_and_ctrl_c(terminal: Terminal) -> None:
    job = running(terminal.crucible, "sleep 1000")
    attached = terminal.begin("attach", job, "--since-start")
    assert attached.stdout is not None
    assert attached.stdout.readline() == "on\n"
    os.killpg(attached.pid, signal.SIGINT)
    _, said = attached.communicate(timeout=20)
    assert (attached.returncode, "Detached; the job continues" in said) == (130, True)
    assert terminal.crucible.job(job)["status"] == "running"
    terminal.ok("cancel", job)


# ports


def fetch(port: int) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/page.txt")
    return connection.getresponse().read()


def test_a_port_of_the_job_is_reached_from_here(terminal: Terminal, job: str) -> None:
    port = int(terminal.ok("ports", job))
    command = terminal.begin("ports", job, f"{port}:0", "--json")
    assert command.stdout is not None
    told = json.loads(command.stdout.readline())
    assert (told["port"], told["host"]) == (port, "127.0.0.1")
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(fetch(told["local"]))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [bytes(range(256)) * 4000] * 10
    os.killpg(command.pid, signal.SIGINT)
    assert command.wait(20) == 130


def test_ports_of_others_on_the_same_computer_are_refused(terminal: Terminal, job: str) -> None:
    """The server itself listens on that computer: a job's ports do not lead there."""
    servers = terminal.crucible.discovery["url"].rpartition(":")[2]
    done = terminal.run("ports", job, servers)
    assert done.returncode == 5
    assert f"No process of the job listens on port {servers}" in done.stderr
    assert f"Ports it listens on: {terminal.ok('ports', job).strip()}" in done.stderr


@pytest.mark.parametrize("text", ["0", "99999", "http", "80:x", "1:2:3", ""])
def test_what_is_no_port(terminal: Terminal, job: str, text: str) -> None:
    assert terminal.run("ports", job, text).returncode == 2


def test_a_port_that_is_taken_here(terminal: Terminal, job: str) -> None:
    port = terminal.ok("ports", job).strip()
    done = terminal.run("ports", job, port)
    assert done.returncode == 5, "the place is this computer, where the program has it"
    assert f"{port}" in done.stderr


def test_forwarding_ends_with_the_job(terminal: Terminal) -> None:
    job = terminal.crucible.submit(python(SERVING, resources=SMALL))
    until(lambda: b"listens on" in terminal.crucible.log(job), 60, "the program")
    port = terminal.ok("ports", job).strip()
    command = terminal.begin("ports", job, f"{port}:0", "--quiet")
    assert command.stdout is not None
    assert fetch(int(command.stdout.readline().rpartition(":")[2]))
    terminal.ok("cancel", job)
    assert command.wait(30) == 0


# From Python


def test_the_client_does_the_same(platform: SyncMLPlatform, job: str) -> None:
    found = platform.job(job)
    done = found.exec(["sh", "-c", "tr a-z A-Z; echo no >&2; exit 2"], input=b"abc\xff")
    assert (done.code, done.stdout, done.stderr, done.ok) == (2, b"ABC\xff", b"no\n", False)
    with pytest.raises(TimedOut):
        found.exec(["sleep", "1000"], timeout=0.5)
    (port,) = found.ports()
    with found.forward(port, local=0) as forward:
        assert fetch(forward.local) == bytes(range(256)) * 4000
    with pytest.raises(Conflict, match="port 1"):
        found.forward(1)


def test_and_the_asynchronous_one(terminal: Terminal, job: str) -> None:
    async def run() -> tuple[int, int]:
        async with MLPlatform(settings=load_settings(environ=terminal.crucible.env)) as platform:
            found = platform.job(job)
            done = await found.exec(["true"])
            (port,) = await found.ports()
            async with found.forward(port, local=0) as forward:
                return done.code, len(await asyncio.to_thread(fetch, forward.local))

    assert asyncio.run(run()) == (0, 256 * 4000)


# Who may


def test_members_enter_only_where_they_may_run(terminal: Terminal, job: str) -> None:
    terminal.run("users", "add", "eve")
    terminal.run("projects", "grant", "default", "eve", "member")
    url = terminal.crucible.discovery["url"]
    for scopes, code in ((["read"], "forbidden"), (["read", "write"], "refused_by_policy")):
        asked = [word for scope in scopes for word in ("--scope", scope)]
        token = terminal.json("tokens", "create", "hers", "--user", "eve", *asked)["token"]
        with SyncMLPlatform(url, token=token) as platform:
            with pytest.raises(CrucibleError) as refused:
                platform.job(job).exec(["true"])
            assert refused.value.code == code


def test_it_is_written_down_who_ran_what(terminal: Terminal, job: str) -> None:
    terminal.ok("exec", job, "--", "echo", "for the record")
    items = terminal.json("audit")["items"]
    (found,) = [item for item in items if item["data"].get("command") == ["echo", "for the record"]][:1]
    assert (found["user"], found["action"], found["target"]) == ("owner", "job.exec", job)
