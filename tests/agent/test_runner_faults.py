"""Test faults that a runner and its host survive, and how they handle those that they do not."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.agents_server import ALWAYS, NATIVE_ID, AgentsServer
from tests.agent.real_machine import A1, Machine, script
from tests.agent.waiting import is_running, poll

from crucible.wire.documents.messages import MessageKind

pytestmark = pytest.mark.enable_socket


@pytest.fixture
def machine(tmp_path: Path, control: AgentsServer, hosts: None) -> Iterator[Machine]:
    machine = Machine(tmp_path, control)
    yield machine
    machine.close()


def wait_until(path: Path) -> str:
    """Return Python code that waits until a file exists."""
    return f"import os, time\nwhile not os.path.exists({str(path)!r}): time.sleep(0.01)\n"


def test_everything_arrives_once_and_in_order_after_an_outage(
    machine: Machine, control: AgentsServer, tmp_path: Path
) -> None:
    go, half = tmp_path / "go", tmp_path / "half"
    text = wait_until(go) + f"for i in range(20000): print('line', i)\nopen({str(half)!r}, 'w')\n"
    machine.start_host()
    machine.run(script(text + wait_until(tmp_path / "end") + "print('last')"))
    control.wait_for(A1, MessageKind.STARTED)
    control.down()
    go.touch()
    poll(half.exists)
    (tmp_path / "end").touch()
    poll((machine.folder() / "exited").exists)
    control.start()
    control.wait_for(A1, MessageKind.ENDED, 40)
    expected = "".join(f"line {i}\n" for i in range(20000)) + "last\n"
    assert control.attempts[A1].log().decode() == expected


def test_a_server_with_bad_days(machine: Machine, control: AgentsServer) -> None:
    control.faults.alternate(500, None, 429, None)
    machine.start_host()
    machine.run(script("for i in range(1000): print(i)"))
    control.wait_for(A1, MessageKind.ENDED, 40)
    assert control.attempts[A1].log().decode() == "".join(f"{i}\n" for i in range(1000))


def test_a_huge_line_is_cut_in_bounded_memory(machine: Machine, control: AgentsServer) -> None:
    machine.start_host()
    text = """
import os, time
for _ in range(200):
    os.write(1, b'x' * 1_000_000)
os.write(1, b'\\nafter\\n')
time.sleep(60)
"""
    machine.run(script(text))
    control.wait_output(A1, b"after", 40)
    status = Path(f"/proc/{machine.runner().pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    assert peak < 60 * 1024
    control.stop(A1)
    control.wait_for(A1, MessageKind.ENDED)
    log = control.attempts[A1].log()
    assert log.endswith(b"bytes left out]\nafter\n")
    assert len(log) < 100_000


def test_a_killed_host_loses_nothing(machine: Machine, control: AgentsServer, tmp_path: Path) -> None:
    host = machine.start_host()
    text = f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\n" + wait_until(tmp_path / "go") + "print('done')"
    machine.run(script(text))
    control.wait_for(A1, MessageKind.STARTED)
    runner = machine.runner()
    host.kill()
    host.wait()
    machine.start_host()
    poll(lambda: "alive" in machine.log())
    assert machine.runner() == runner
    (tmp_path / "go").touch()
    control.wait_for(A1, MessageKind.ENDED)
    assert (tmp_path / "runs").read_text() == "x"
    poll(lambda: not machine.folder().exists())


def test_a_stop_reaches_a_runner_without_a_host(machine: Machine, control: AgentsServer) -> None:
    host = machine.start_host()
    machine.run(script("import time; time.sleep(60)"))
    control.wait_for(A1, MessageKind.STARTED)
    host.kill()
    host.wait()
    control.stop(A1)
    control.wait_for(A1, MessageKind.ENDED)
    assert control.attempts[A1].of(MessageKind.EXITED)[0].data["cause"] == "stopped"


def test_a_killed_runner_is_reported_and_nothing_runs_twice(
    machine: Machine, control: AgentsServer, tmp_path: Path
) -> None:
    machine.start_host()
    text = f"""
open({str(tmp_path / "runs")!r}, 'a').write('x')
open('model.txt', 'w').write('half')
print('before', flush=True)
import time; time.sleep(60)
"""
    machine.run(script(text))
    started = control.wait_for(A1, MessageKind.STARTED)
    control.wait_output(A1, b"before")
    os.kill(machine.runner().pid, signal.SIGKILL)
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert exited.data["cause"] == "runner_lost"
    control.wait_for(A1, MessageKind.ENDED)
    assert not is_running(started.data["pid"])
    assert (tmp_path / "runs").read_text() == "x"
    assert control.attempts[A1].log() == b"before\n"
    assert control.attempts[A1].artifacts == {"model.txt": b"half"}
    assert len(control.attempts[A1].of(MessageKind.EXITED)) == 1


def test_host_and_runner_killed_together(machine: Machine, control: AgentsServer, tmp_path: Path) -> None:
    host = machine.start_host()
    machine.run(script(f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\nimport time; time.sleep(60)"))
    started = control.wait_for(A1, MessageKind.STARTED)
    poll((tmp_path / "runs").exists)
    host.kill()
    host.wait()
    os.kill(machine.runner().pid, signal.SIGKILL)
    machine.start_host()
    assert control.wait_for(A1, MessageKind.EXITED).data["cause"] == "runner_lost"
    control.wait_for(A1, MessageKind.ENDED)
    assert not is_running(started.data["pid"])
    assert (tmp_path / "runs").read_text() == "x"


def test_a_runner_killed_while_it_prepares_begins_again(
    machine: Machine, control: AgentsServer, tmp_path: Path
) -> None:
    control.faults.refuse("*/bundles/*", times=ALWAYS)
    machine.start_host()
    machine.run(script("print('ran')", bundle=control.add_bundle(b"code")))
    control.wait(lambda: any("/bundles/" in path for _, path in control.requests))
    runner = machine.runner()
    os.kill(runner.pid, signal.SIGKILL)
    poll(lambda: machine.runner() != runner)
    control.stop(A1)
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert exited.data["cause"] == "not_started"
    control.wait_for(A1, MessageKind.ENDED)


def test_a_bad_assignment_does_not_stop_the_others(machine: Machine, control: AgentsServer) -> None:
    def with_bad_one(document: dict[str, Any]) -> dict[str, Any]:
        """A server with a bug that makes a bad assignment."""
        (good,) = document["assignments"] or (None,)
        bad = good and {**good, "attempt": "../out"}
        return {**document, "assignments": [bad, good] if good else []}

    control.faults.change("*/machines/*/desired", with_bad_one)
    host = machine.start_host()
    machine.run(script("print('x')"))
    control.wait_for(A1, MessageKind.ENDED)
    assert host.poll() is None
    assert not (machine.work / "out-0").exists()


def test_of_two_hosts_one_stays(machine: Machine, control: AgentsServer) -> None:
    first = machine.start_host()
    poll((machine.work / "host.json").exists)
    control.wait(lambda: control.count("/desired") > 0)
    second = machine.start_host()
    assert second.wait(20) == 0
    assert first.poll() is None
    assert json.loads((machine.work / "host.json").read_text())["pid"] == first.pid
    assert (control.claimed_by, control.count("/claim")) == (NATIVE_ID, 1)


def test_a_host_that_is_not_wanted_leaves(machine: Machine, control: AgentsServer) -> None:
    control.end_machine()
    assert machine.start_host().wait(20) == 0


def test_a_double_leaves(machine: Machine, control: AgentsServer) -> None:
    control.claim("another")
    assert machine.start_host().wait(20) == 0
    assert not (machine.work / "secret").exists()


def test_a_released_host_leaves_when_its_work_is_done(machine: Machine, control: AgentsServer) -> None:
    later: dict[str, bool] = {}  # our server says it to no host yet, and hosts hear it from later ones
    control.faults.change("*/machines/*/desired", lambda document: {**document, **later})
    host = machine.start_host()
    machine.run(script("print('x')"))
    control.wait_for(A1, MessageKind.ENDED)
    later["release"] = True
    control.publish()
    assert host.wait(20) == 0
    assert not machine.folder().exists()


def test_an_idle_host_leaves_when_nobody_answers(tmp_path: Path, control: AgentsServer, hosts: None) -> None:
    machine = Machine(tmp_path, control, idle_exit_seconds=0.5)
    host = machine.start_host()
    control.wait(lambda: control.count("/desired") > 0)
    control.down()
    assert host.wait(20) == 0


def test_a_second_claim_is_not_made(machine: Machine, control: AgentsServer) -> None:
    host = machine.start_host()
    control.wait(lambda: bool(control.devices))
    assert json.loads(control.devices[0])["cpus"] > 0
    host.kill()
    host.wait()
    machine.start_host()
    control.wait(lambda: len(control.devices) == 2)
    assert (control.claimed_by, control.count("/claim")) == (NATIVE_ID, 1)


def test_the_machines_folder_is_moved_and_a_link_put_in_its_place(machine: Machine, control: AgentsServer) -> None:
    """The job goes on; what it writes meanwhile may be left out, as on a full disk."""
    machine.start_host()
    machine.run(script("import time\nfor i in range(60): print(i, flush=True); time.sleep(0.1)"))
    control.wait_for(A1, MessageKind.STARTED)
    runner = machine.runner()
    moved = machine.work.with_name("moved")
    machine.work.rename(moved)
    time.sleep(2)
    machine.work.symlink_to(moved)
    control.wait_for(A1, MessageKind.ENDED, 40)
    assert machine.runner() == runner
    assert control.attempts[A1].of(MessageKind.EXITED)[0].data["code"] == 0
    assert control.attempts[A1].log().decode().endswith("58\n59\n")
