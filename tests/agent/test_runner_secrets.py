"""Test secrets on a real machine: they are in the program's variables, and in nothing that is written or sent."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.agent.agents_server import ALWAYS, AgentsServer
from tests.agent.real_machine import A1, Machine, script
from tests.agent.waiting import poll

from crucible.agent.files import is_locked
from crucible.wire.documents.messages import MessageKind

pytestmark = pytest.mark.enable_socket

VALUE = "canary-5ebf+f17/áé-value"


@pytest.fixture
def control(control: AgentsServer) -> AgentsServer:
    """A control plane with a secret, whose hosts keep the files of jobs for the test."""
    control.set_secret("TOKEN", VALUE)
    control.hold_ends()
    return control


def told(control: AgentsServer) -> str:
    """Return everything that arrived from the attempt, except its outputs."""
    attempt = control.attempts[A1]
    messages = json.dumps([dict(message.data) for message in attempt.messages], ensure_ascii=False)
    return messages + attempt.log().decode() + b"".join(attempt.tails).decode()


def on_disk(folder: Path) -> list[str]:
    """Return the files below the folder that contain the value, except those that the job wrote."""
    own = ("outputs", "work", "report.jsonl")
    files = [path for path in folder.rglob("*") if path.is_file() and not set(own) & set(path.parts)]
    return [str(path) for path in files if VALUE.encode() in path.read_bytes()]


def command_lines() -> str:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(Path("/proc", name, "cmdline").read_bytes().decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(found)


@pytest.mark.usefixtures("new_interpreters")
def test_the_program_has_it_and_nobody_else(machine: Machine, control: AgentsServer, tmp_path: Path) -> None:
    text = """
import os, pathlib, time
value = os.environ["TOKEN"]
out = pathlib.Path(os.environ["CRUCIBLE_OUTPUT_DIR"])
(out / "seen.txt").write_text(value)
(out / f"named-{value[:6]}.txt").write_text("harmless")
print("raw", value, flush=True)
print("loss of " + value + " = 0.5", flush=True)
while not (out / "go").exists():
    time.sleep(0.02)
raise ValueError(value)
"""
    machine.run(script(text, secrets={"TOKEN": "TOKEN"}))
    control.wait_output(A1, b"loss of")
    assert VALUE not in command_lines()
    assert on_disk(machine.work) == []
    (machine.folder() / "outputs" / "go").touch()
    control.wait_for(A1, MessageKind.ENDED)
    attempt = control.attempts[A1]
    assert attempt.of(MessageKind.EXITED)[0].data["code"] == 1
    assert attempt.artifacts["seen.txt"].decode() == VALUE, "what a job stores is its own"
    assert VALUE not in told(control)
    log = attempt.log().decode()
    assert log.startswith("raw ***\nloss of *** = 0.5\n")
    assert "ValueError: ***" in log
    assert on_disk(machine.work) == []


def test_an_output_whose_name_tells_it_is_left_out(machine: Machine, control: AgentsServer) -> None:
    control.set_secret("TOKEN", "plain-name-of-a-file")
    text = """
import os, pathlib
import crucible
value = os.environ["TOKEN"]
out = pathlib.Path(os.environ["CRUCIBLE_OUTPUT_DIR"])
(out / value).write_text("content")
(out / "kept.txt").write_text("content")
crucible.report(step=1, **{value: 2.0, "loss": 1.0})
"""
    machine.run(script(text, secrets={"TOKEN": "TOKEN"}))
    ended = control.wait_for(A1, MessageKind.ENDED)
    attempt = control.attempts[A1]
    assert list(attempt.artifacts) == ["kept.txt"]
    assert ended.data["complete"] is False
    assert any("contains a secret" in note for note in attempt.notes)
    assert attempt.points("loss")
    assert "plain-name-of-a-file" not in json.dumps([dict(m.data) for m in attempt.messages])


def test_it_is_asked_for_until_the_server_answers(machine: Machine, control: AgentsServer) -> None:
    control.faults.refuse("*/secrets", times=2)
    machine.run(script("import os; print(len(os.environ['TOKEN']))", secrets={"TOKEN": "TOKEN"}))
    control.wait_for(A1, MessageKind.ENDED, 40)
    assert control.attempts[A1].log().decode() == f"{len(VALUE)}\n"
    assert control.count("/secrets") == 3
    said = [str(message.data["what"]) for message in control.attempts[A1].of(MessageKind.STAGING)]
    assert any(text.startswith("waiting for the job's secrets: the server answered 503") for text in said)


def test_one_that_is_refused_fails_the_job_before_it_starts(machine: Machine, control: AgentsServer) -> None:
    control.faults.refuse("*/secrets", 404)
    machine.run(script("print('never')", secrets={"TOKEN": "TOKEN"}))
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert exited.data["cause"] == "staging_failed"
    assert "refused the job's secrets" in str(exited.data["text"])
    control.wait_for(A1, MessageKind.ENDED)
    assert b"never" not in control.attempts[A1].log()


def test_one_that_the_server_leaves_out_fails_the_job(machine: Machine, control: AgentsServer) -> None:
    def leave_out(answer: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        """A server with a bug."""
        return {"secrets": {name: value for name, value in answer["secrets"].items() if name != "OTHER"}}

    control.faults.change("*/secrets", leave_out)
    machine.run(script("print('never')", secrets={"OTHER": "TOKEN", "TOKEN": "TOKEN"}))
    exited = control.wait_for(A1, MessageKind.EXITED)
    assert "no value for OTHER" in str(exited.data["text"])


def test_a_job_without_secrets_asks_for_none(machine: Machine, control: AgentsServer) -> None:
    machine.run(script("import os; print('TOKEN' in os.environ)"))
    control.wait_for(A1, MessageKind.ENDED)
    assert control.attempts[A1].log() == b"False\n"
    assert control.count("/secrets") == 0


def test_a_successor_of_a_dead_runner_tells_nothing_either(machine: Machine, control: AgentsServer) -> None:
    control.set_secret("TOKEN", "plain-name-of-a-file")
    text = """
import os, pathlib, time
import crucible
value = os.environ["TOKEN"]
pathlib.Path(os.environ["CRUCIBLE_OUTPUT_DIR"], value).write_text("content")
crucible.report(step=1, **{value: 2.0})
print("printed", value, flush=True)
time.sleep(60)
"""
    machine.run(script(text, secrets={"TOKEN": "TOKEN"}))
    control.wait_output(A1, b"printed")
    runner = json.loads((machine.folder() / "runner.json").read_text())
    os.kill(int(runner["pid"]), 9)
    control.wait_for(A1, MessageKind.ENDED, 60)
    assert "plain-name-of-a-file" not in told(control)
    assert control.attempts[A1].artifacts == {}
    poll((machine.folder() / "done").exists)


def test_a_successor_without_the_secrets_stores_no_small_file(machine: Machine, control: AgentsServer) -> None:
    text = """
import os, time
open("config.txt", "w").write(os.environ["TOKEN"])
open("weights.bin", "wb").write(bytes(2_000_000))
print("written", flush=True)
time.sleep(60)
"""
    machine.run(script(text, secrets={"TOKEN": "TOKEN"}))
    control.wait_output(A1, b"written")
    control.faults.refuse("*/secrets", times=ALWAYS)
    os.kill(machine.runner().pid, 9)
    control.wait_for(A1, MessageKind.ENDED, 60)
    assert list(control.attempts[A1].artifacts) == ["weights.bin"]
    assert any("small files of the working directory were not stored: 1" in note for note in control.attempts[A1].notes)


def test_a_host_and_a_runner_that_die_before_the_start_lose_nothing(machine: Machine, control: AgentsServer) -> None:
    control.faults.refuse("*/secrets", times=ALWAYS)
    machine.run(script("import os; print('it is', os.environ['TOKEN'])", secrets={"TOKEN": "TOKEN"}))
    control.wait(lambda: control.count("/secrets") > 0)
    for name in (machine.work / "host.json", machine.folder() / "runner.json"):
        os.kill(int(json.loads(name.read_text())["pid"]), 9)
    poll(lambda: not is_locked(machine.work / "host.lock"))  # a host that is being killed still holds it for a moment
    assert on_disk(machine.work) == []
    control.faults.lift("*/secrets")
    machine.start_host()
    control.wait_for(A1, MessageKind.ENDED, 60)
    assert control.attempts[A1].log() == b"it is ***\n"
    assert on_disk(machine.work) == []


def test_a_result_does_not_tell_it(machine: Machine, control: AgentsServer) -> None:
    text = """
import os
import crucible
value = os.environ["TOKEN"]
crucible.result({"seen": value, value: [value, 7]})
"""
    machine.run(script(text, secrets={"TOKEN": "TOKEN"}))
    control.wait_for(A1, MessageKind.ENDED)
    (result,) = control.attempts[A1].of(MessageKind.RESULT)
    assert result.data["value"] == {"seen": "***", "***": ["***", 7]}
    assert VALUE not in told(control)
