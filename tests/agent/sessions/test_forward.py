"""Test connections of sessions: they reach ports on which the job listens, and no others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.sessions.callers import Callers, around

from crucible.agent.sessions.ports import PortsUnknown, find_ports
from crucible.wire.http import sessions as s

pytestmark = pytest.mark.enable_socket

ECHO = """\
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    received = b""
    while part := connection.recv(65536):
        received += part
    connection.sendall(received[::-1])
    connection.close()
"""


@pytest.fixture
def echo() -> Iterator[tuple[int, int]]:
    """Start a process that answers once the other side has ended, and yield its pid and port."""
    with subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.kill()


def test_bytes_go_both_ways_and_each_side_ends_by_itself(
    callers: Callers, tmp_path: Path, echo: tuple[int, int]
) -> None:
    pid, port = echo
    caller = callers.open(around(tmp_path, pids=lambda: [pid]), s.Connection(port)).ready()
    content = bytes(range(256)) * 100
    caller.send(s.data_frame(content), s.end_frame())
    seen = caller.to_the_end()
    assert seen.stdout == content[::-1]
    assert seen.ended
    assert seen.over == s.Over(code=0)


def test_a_port_of_somebody_else_is_refused_and_the_jobs_own_are_named(
    callers: Callers, tmp_path: Path, echo: tuple[int, int]
) -> None:
    pid, port = echo
    with socket.create_server(("127.0.0.1", 0)) as ours:
        other = ours.getsockname()[1]
        problem = callers.open(around(tmp_path, pids=lambda: [pid]), s.Connection(other)).to_the_end().over.problem
    assert problem is not None
    assert (problem.code, problem.why) == ("conflict", f"Ports it listens on: {port}.")


def test_a_connection_of_the_job_elsewhere_is_no_port_it_listens_on(callers: Callers, tmp_path: Path) -> None:
    """A server that a job's process is connected to must not be reachable."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); print('on', flush=True); input()"
        with subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            over = callers.open(around(tmp_path, pids=lambda: [process.pid]), s.Connection(port)).to_the_end().over
            process.kill()
    assert over.problem is not None
    assert over.problem.why == "Ports it listens on: none."


def test_the_ports_of_a_job_are_told(callers: Callers, tmp_path: Path, echo: tuple[int, int]) -> None:
    pid, port = echo
    assert callers.open(around(tmp_path, pids=lambda: [pid]), s.Ports()).to_the_end().over == s.Over(0, ports=(port,))
    none = callers.open(around(tmp_path), s.Ports())
    assert none.to_the_end().over == s.Over(0, ports=())


def test_the_agents_own_ports_are_not_the_jobs(callers: Callers, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)):
        over = callers.open(around(tmp_path, pids=lambda: [os.getpid()]), s.Ports()).to_the_end().over
    assert over.ports == ()


def test_a_caller_who_leaves_ends_the_connection(callers: Callers, tmp_path: Path) -> None:
    text = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True);"
        "c, _ = s.accept(); print('came', flush=True); print(len(c.recv(9)), flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        caller = callers.open(around(tmp_path, pids=lambda: [process.pid]), s.Connection(port)).ready()
        assert process.stdout.readline() == b"came\n"
        caller.leave()
        assert process.stdout.readline() == b"0\n", "it saw the end"


def test_many_at_once(callers: Callers, tmp_path: Path) -> None:
    text = (
        "import socket, threading; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "def serve(c):\n    while part := c.recv(9): c.sendall(part)\n    c.close()\n"
        "while True: threading.Thread(target=serve, args=(s.accept()[0],)).start()"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        found = around(tmp_path, pids=lambda: [process.pid])
        many = [callers.open(found, s.Connection(port)).ready() for _ in range(12)]
        for number, caller in enumerate(many):
            caller.send(s.data_frame(str(number).encode()))
        for number, caller in enumerate(many):
            caller.until(str(number).encode())
            caller.send(s.end_frame())
            assert caller.to_the_end().over == s.Over(code=0)
        process.kill()
    assert threading.active_count() < 200


# Who listens where

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def table(*rows: tuple[str, str, int]) -> str:
    return HEAD + "".join(
        f"   {n}: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0\n"
        for n, (local, state, inode) in enumerate(rows)
    )


def a_proc(folder: Path, tcp: str, tcp6: str = HEAD, owned: tuple[int, ...] = ()) -> Path:
    (folder / "self" / "net").mkdir(parents=True)
    (folder / "self" / "net" / "tcp").write_text(tcp)
    (folder / "self" / "net" / "tcp6").write_text(tcp6)
    (folder / "7" / "fd").mkdir(parents=True)
    for number, inode in enumerate(owned):
        (folder / "7" / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
    (folder / "7" / "fd" / "99").symlink_to("/dev/null")
    return folder


@pytest.mark.skipif(sys.byteorder != "little", reason="the table is written for such a machine")
def test_only_listening_sockets_of_the_processes_count(tmp_path: Path) -> None:
    tcp = table(
        ("0100007F:1F90", "0A", 1),
        ("0100007F:1F91", "01", 2),  # connected, not listening
        ("00000000:1F92", "0A", 3),
        ("0100007F:1F93", "0A", 4),  # somebody else's
        ("0500000A:1F94", "0A", 5),  # 10.0.0.5
    )
    tcp6 = table(
        ("00000000000000000000000000000000:1F95", "0A", 6),
        ("00000000000000000000000001000000:1F96", "0A", 7),
        ("0000000000000000FFFF00000100007F:1F97", "0A", 8),
        ("B80D01200000000000000000010000FF:1F98", "0A", 9),
    )
    proc = a_proc(tmp_path, tcp, tcp6, (1, 2, 3, 5, 6, 7, 8, 9))
    found = {port: one.address for port, one in find_ports([7, 8], proc).items()}
    assert found == {
        8080: "127.0.0.1",
        8082: "127.0.0.1",
        8084: None,
        8085: "::1",
        8086: "::1",
        8087: "127.0.0.1",
        8088: None,
    }


def test_where_nothing_tells_nothing_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(PortsUnknown):
        find_ports([1], tmp_path)


def test_a_table_that_is_cut_short(tmp_path: Path) -> None:
    assert find_ports([7], a_proc(tmp_path, HEAD + "   0: 0100007F:1F90 00000000:0000 0A\n", owned=(1,))) == {}
