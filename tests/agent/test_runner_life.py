"""Test the life of an attempt on a real machine, by the messages that arrive at the control plane."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.agent.agents_server import AgentsServer
from tests.agent.real_machine import A1, A2, PYTHON, Machine, script
from tests.agent.waiting import is_running, poll

from crucible.core.compute.resources import Resources
from crucible.core.job.spec import EnvironmentSpec
from crucible.core.job.states import JobState
from crucible.wire.documents.messages import Cause, MessageKind

pytestmark = pytest.mark.enable_socket


def test_a_job_that_succeeds(machine: Machine, control: AgentsServer) -> None:
    attempt = machine.run(script("print('hello'); print('epoch 1/2 loss=0.5')"))
    ended = control.wait_for(A1, MessageKind.ENDED)
    assert ended.data == {"complete": True, "text": ""}
    (exited,) = attempt.of(MessageKind.EXITED)
    assert (exited.data["code"], exited.data["signal"], exited.data["cause"]) == (0, None, Cause.EXIT.value)
    assert float(str(exited.data["cpu_seconds"])) > 0
    assert int(str(exited.data["peak_memory"])) > 1_000_000
    assert attempt.log() == b"hello\nepoch 1/2 loss=0.5\n"
    (started,) = attempt.of(MessageKind.STARTED)
    assert started.data["python"] == PYTHON
    assert [point[:2] for point in attempt.points("loss")] == [(1, 0.5)]
    assert attempt.of(MessageKind.PROGRESS)[-1].data["epoch"] == 1
    assert attempt.world().job.state is JobState.COMPLETED
    poll(lambda: not machine.folder().exists())


def test_exit_code_and_signal_are_told_apart(machine: Machine, control: AgentsServer) -> None:
    machine.run(script("raise SystemExit(3)"))
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert (exited.data["code"], exited.data["cause"]) == (3, "exit")
    control.wait_for(A1, MessageKind.ENDED)
    machine.run(script("import os; os.kill(os.getpid(), 6)"), A2)
    exited = control.wait_for(A2, MessageKind.EXITED)
    assert (exited.data["code"], exited.data["signal"], exited.data["cause"]) == (
        None,
        signal.SIGABRT,
        "signal",
    )


def test_stop_is_heard_by_the_process(machine: Machine, control: AgentsServer) -> None:
    text = """
import os, signal, sys, time
def end(*args):
    print('stop file', os.path.exists(os.environ['CRUCIBLE_STOP_FILE']))
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
print('ready')
time.sleep(60)
"""
    machine.run(script(text))
    control.wait_output(A1, b"ready")
    control.stop(A1)
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert (exited.data["code"], exited.data["cause"]) == (7, "stopped")
    control.wait_for(A1, MessageKind.ENDED)
    assert control.attempts[A1].log() == b"ready\nstop file True\n"


def test_a_process_that_ignores_the_stop_is_killed_with_its_children(machine: Machine, control: AgentsServer) -> None:
    text = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
print(os.getpid(), flush=True)
time.sleep(60)
"""
    machine.run(script(text, grace_seconds=0.2))
    control.wait(lambda: control.attempts[A1].output.count(b"\n") == 2)
    control.stop(A1)
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert (exited.data["signal"], exited.data["cause"]) == (signal.SIGKILL, "stopped")
    control.wait_for(A1, MessageKind.ENDED)
    for pid in control.attempts[A1].log().split():
        assert not is_running(pid.decode())


def test_what_a_job_leaves_behind_ends_with_it(machine: Machine, control: AgentsServer) -> None:
    text = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(0.3)
"""
    machine.run(script(text))
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert exited.data["code"] == 0
    control.wait_for(A1, MessageKind.ENDED)
    assert not is_running(int(control.attempts[A1].log()))


def test_stop_before_the_start(machine: Machine, control: AgentsServer) -> None:
    control.wait(lambda: control.count("/desired") > 0)  # where no host has come yet, none is told of it
    machine.run(script("open('/tmp/never', 'w')"), cancelled=True)
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert exited.data["cause"] == "not_started"
    control.wait_for(A1, MessageKind.ENDED)
    assert control.attempts[A1].of(MessageKind.STARTED) == []


def test_time_limit(machine: Machine, control: AgentsServer) -> None:
    machine.run(script("import time; time.sleep(60)", resources=Resources(seconds=1)))
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert (exited.data["signal"], exited.data["cause"]) == (signal.SIGTERM, "time_limit")


def test_out_of_memory(machine: Machine, control: AgentsServer) -> None:
    text = "import time; time.sleep(0.3); x = [bytearray(b'x' * 10_000_000) for _ in range(60)]; time.sleep(60)"
    machine.run(script(text, resources=Resources(memory_bytes=100_000_000)))
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert (exited.data["cause"], exited.data["code"]) == ("out_of_memory", None)


def test_a_command_that_is_not_there(machine: Machine, control: AgentsServer) -> None:
    machine.run(script("", command=("no-such-program",)))
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert (exited.data["code"], exited.data["cause"]) == (127, "staging_failed")
    assert "no-such-program" in str(exited.data["text"])
    control.wait_for(A1, MessageKind.ENDED)


def test_an_interpreter_that_is_not_there(machine: Machine, control: AgentsServer) -> None:
    machine.run(script("", environment=EnvironmentSpec(interpreter="/no/python")))
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert exited.data["cause"] == "staging_failed"
    assert "--python" in str(exited.data["text"])
    control.wait_for(A1, MessageKind.ENDED)
    assert b"/no/python" in control.attempts[A1].log()


def test_outputs_become_artifacts(machine: Machine, control: AgentsServer) -> None:
    text = """
import os
out = os.environ['CRUCIBLE_OUTPUT_DIR']
os.makedirs(out + '/sub dir')
open(out + '/sub dir/ä.bin', 'wb').write(b'x' * 3_000_000)
open(out + '/small.txt', 'w').write('small')
os.symlink('/etc/hostname', out + '/out')
os.mkfifo(out + '/pipe')
"""
    machine.run(script(text))
    ended = control.wait_for(A1, MessageKind.ENDED)
    attempt = control.attempts[A1]
    assert attempt.artifacts == {"small.txt": b"small", "sub dir/ä.bin": b"x" * 3_000_000}
    assert [message.data["path"] for message in attempt.of(MessageKind.ARTIFACT)] == ["small.txt", "sub dir/ä.bin"]
    assert any("a link out of its folder" in note for note in attempt.notes)
    assert any("regular" in note for note in attempt.notes)
    assert ended.data["complete"] is False


WRITES = """
import os
os.makedirs('runs/1')
open('runs/1/model.txt', 'w').write('x')
open(os.environ['CRUCIBLE_OUTPUT_DIR'] + '/model.txt', 'w').write('y')
"""


def test_files_in_the_working_directory_become_artifacts(machine: Machine, control: AgentsServer) -> None:
    machine.run(script(WRITES))
    ended = control.wait_for(A1, MessageKind.ENDED)
    assert control.attempts[A1].artifacts == {"model.txt": b"y", "runs/1/model.txt": b"x"}
    assert control.attempts[A1].notes == []
    assert ended.data["complete"] is True


def test_files_of_a_job_in_place_are_kept_there(machine: Machine, control: AgentsServer, tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    machine.run(script("open('model.txt', 'w').write('x')", in_place=str(tmp_path / "place")))
    control.wait_for(A1, MessageKind.ENDED)
    assert (tmp_path / "place" / "model.txt").exists()
    assert control.attempts[A1].notes == []


def test_how_long_it_ran_is_told(machine: Machine, control: AgentsServer) -> None:
    machine.run(script("import time; time.sleep(0.3)"))
    seconds = control.wait_for(A1, MessageKind.EXITED).data["seconds"]
    assert isinstance(seconds, float)
    assert 0.3 <= seconds < 20
    control.wait_for(A1, MessageKind.ENDED)
    machine.run(script("", command=("no-such-program",)), A2)
    assert control.wait_for(A2, MessageKind.EXITED).data["seconds"] is None


def test_a_forgotten_attempt_ends(machine: Machine, control: AgentsServer) -> None:
    machine.run(script("import time; time.sleep(60)"))
    pid = control.wait_for(A1, MessageKind.STARTED).data["pid"]
    control.forget(A1)
    poll(lambda: not is_running(pid))
    poll((machine.folder() / "done").exists)


def test_a_settled_attempt_leaves_nothing(machine: Machine, control: AgentsServer) -> None:
    control.hold_ends()
    machine.run(script("print('x')"))
    control.wait_for(A1, MessageKind.ENDED)
    poll((machine.folder() / "done").exists)
    control.release_ends()
    poll(lambda: not machine.folder().exists())


def test_what_a_job_sees(machine: Machine, control: AgentsServer) -> None:
    text = """
import os, json, crucible
crucible.report(3, loss=0.25)
print(json.dumps(dict(os.environ)))
"""
    machine.run(script(text, env={"MINE": "1"}))
    control.wait_for(A1, MessageKind.ENDED)
    attempt = control.attempts[A1]
    env = json.loads(attempt.log())
    assert env["MINE"] == "1"
    assert env["CRUCIBLE_JOB_ID"] == attempt.job
    assert "PYTEST_CURRENT_TEST" not in env
    assert attempt.points("loss")[0][:2] == (3, 0.25)


def test_a_result_is_told_before_the_end(machine: Machine, control: AgentsServer) -> None:
    machine.run(script("import crucible; crucible.result({'label': 'cat'}); crucible.result({'label': 'dog'})"))
    control.wait_for(A1, MessageKind.ENDED)
    (told,) = control.attempts[A1].of(MessageKind.RESULT)
    assert told.data == {"kind": "train", "value": {"label": "dog"}}


def test_a_result_that_is_none_is_noted(machine: Machine, control: AgentsServer) -> None:
    machine.run(script("import os; open(os.environ['CRUCIBLE_RESULT_FILE'], 'w').write('nonsense')"))
    control.wait_for(A1, MessageKind.ENDED)
    assert not control.attempts[A1].of(MessageKind.RESULT)
    assert "the result was not kept: the result is not valid JSON" in control.attempts[A1].notes
