"""Test checkpoints of a real program on a real machine: stored, never torn, and passed to the next attempt."""

from __future__ import annotations

import io
import os
import signal
import tarfile

import pytest
from tests.agent.agents_server import ALWAYS, AgentsServer
from tests.agent.real_machine import A1, A2, Machine, script
from tests.agent.waiting import poll

from crucible.wire.documents.messages import MessageKind

pytestmark = pytest.mark.enable_socket

LONG = 60.0


def told(control: AgentsServer, attempt: str = A1) -> list[tuple[object, object, object]]:
    """Return name, step and metric of the announced checkpoints, each verified against the stored content."""
    return [(row["name"], row["step"], row["metric"]) for row in control.attempts[attempt].checkpoints]


def test_all_that_a_program_left_in_order_is_stored_before_its_end(machine: Machine, control: AgentsServer) -> None:
    text = """
import crucible, os
crucible.checkpoint.save(b"one", step=1, metric=0.5)
folder = os.environ["CRUCIBLE_CHECKPOINT_DIR"]
os.mkdir(folder + "/checkpoint-2")
open(folder + "/checkpoint-2/a", "w").write("two")
open(folder + "/epoch_3.bin", "w").write("three")
open(folder + "/epoch_4.tmp", "w").write("never")
open(folder + "/epoch_5.pt", "wb").write(b"PK\\x03\\x04 torn")
"""
    machine.run(script(text))
    control.wait_for(A1, MessageKind.ENDED, LONG)
    assert sorted(told(control), key=str) == [
        ("checkpoint-2", 2, None),
        ("epoch_3.bin", 3, None),
        ("step-00000001", 1, 0.5),
    ]
    kinds = [message.kind for message in control.attempts[A1].messages]
    assert kinds[-1] is MessageKind.ENDED
    folder = next(row for row in control.attempts[A1].checkpoints if row["form"] == "folder")
    with tarfile.open(fileobj=io.BytesIO(folder["data"])) as tar:
        assert tar.getnames() == ["a"]
    assert control.attempts[A1].notes == ["the checkpoint 'epoch_5.pt' was not stored: it is cut off"]


def test_a_running_program_is_watched(machine: Machine, control: AgentsServer) -> None:
    text = """
import crucible, os, time
crucible.checkpoint.save(b"noted", step=1)
with open(os.environ["CRUCIBLE_CHECKPOINT_DIR"] + "/last.bin", "wb") as file:
    file.write(b"settled")
time.sleep(600)
"""
    machine.run(script(text))
    control.wait(lambda: len(control.attempts[A1].of(MessageKind.CHECKPOINT)) == 2, LONG)
    assert [name for name, _, _ in told(control)] == ["step-00000001", "last.bin"]
    assert control.attempts[A1].of(MessageKind.EXITED) == []
    control.stop(A1)
    control.wait_for(A1, MessageKind.ENDED, LONG)
    assert len(told(control)) == 2


def test_a_name_that_is_written_again_is_another_checkpoint(machine: Machine, control: AgentsServer) -> None:
    text = """
import crucible, os, time
folder = os.path.dirname(os.environ["CRUCIBLE_STOP_FILE"])
for step in range(1, 4):
    crucible.checkpoint.save(b"%d" % step, step=step, name="last.pt")
    while not os.path.exists(f"{folder}/go-{step}"):
        time.sleep(0.02)
"""
    machine.run(script(text))
    for step in range(1, 4):
        control.wait(lambda step=step: len(control.attempts[A1].of(MessageKind.CHECKPOINT)) == step, LONG)
        (machine.folder() / f"go-{step}").touch()
    control.wait_for(A1, MessageKind.ENDED, LONG)
    assert told(control) == [("last.pt", step, None) for step in (1, 2, 3)]


def test_what_a_killed_program_was_writing_is_never_taken(machine: Machine, control: AgentsServer) -> None:
    text = """
import crucible, os, time
crucible.checkpoint.save(b"whole", step=1)
with open(os.environ["CRUCIBLE_CHECKPOINT_DIR"] + "/step-2.bin", "wb") as file:
    while True:
        file.write(b"x" * 100_000)
        file.flush()
        print("writing", flush=True)
        time.sleep(0.2)
"""
    machine.run(script(text))
    pid = int(str(control.wait_for(A1, MessageKind.STARTED).data["pid"]))
    control.wait_output(A1, b"writing", LONG)
    os.kill(pid, signal.SIGKILL)
    control.wait_for(A1, MessageKind.ENDED, LONG)
    assert told(control) == [("step-00000001", 1, None)]
    assert any("step-2.bin" in note and "died" in note for note in control.attempts[A1].notes)


def test_a_runner_that_died_leaves_noted_checkpoints_to_its_successor(machine: Machine, control: AgentsServer) -> None:
    control.faults.refuse("*/checkpoints/*", times=ALWAYS)
    text = """
import crucible, os, time
crucible.checkpoint.save(b"whole", step=1)
open(os.environ["CRUCIBLE_CHECKPOINT_DIR"] + "/step-2.bin", "w").write("perhaps")
print("saved", flush=True)
time.sleep(600)
"""
    machine.run(script(text))
    control.wait_output(A1, b"saved", LONG)
    runner = machine.runner()
    os.kill(runner.pid, signal.SIGKILL)
    poll(lambda: not runner.alive)
    control.faults.lift("*/checkpoints/*")
    control.wait_for(A1, MessageKind.ENDED, LONG)
    assert told(control) == [("step-00000001", 1, None)]


SAVES_ON_TERM = """
import crucible, os, signal, sys, time
start = crucible.checkpoint.latest()
step = 0 if start is None else int(start.read_text())
print("starting at", step, os.environ.get("CRUCIBLE_RESUME_FROM", "-").rsplit("/", 1)[-1], flush=True)
def save(*args):
    with open(os.environ["CRUCIBLE_CHECKPOINT_DIR"] + f"/step-{step + 1}.txt", "w") as file:
        file.write(str(step + 1))
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(0.1)
"""


def test_saved_on_a_stop_and_resumed_elsewhere(machine: Machine, control: AgentsServer) -> None:
    machine.run(script(SAVES_ON_TERM))
    control.wait_output(A1, b"ready", LONG)
    control.stop(A1)
    control.wait_for(A1, MessageKind.ENDED, LONG)
    assert told(control) == [("step-1.txt", 1, None)]
    (saved,) = control.attempts[A1].checkpoints
    machine.run(script(SAVES_ON_TERM, resume_from=saved["id"]), A2)
    control.wait_output(A2, b"ready", LONG)
    control.stop(A2)
    control.wait_for(A2, MessageKind.ENDED, LONG)
    assert control.attempts[A2].log() == b"starting at 1 step-1.txt\nready\n"
    assert told(control, A2) == [("step-2.txt", 2, None)]
    staging = [str(message.data["what"]) for message in control.attempts[A2].of(MessageKind.STAGING)]
    assert "fetching checkpoint step-1.txt (step 1)" in staging


def test_a_checkpoint_that_is_not_there_is_told(machine: Machine, control: AgentsServer) -> None:
    machine.run(script("import crucible; crucible.checkpoint.save(b'one', step=1)"))
    control.wait_for(A1, MessageKind.ENDED, LONG)
    (saved,) = control.attempts[A1].checkpoints
    control.faults.refuse("*/checkpoints/*", 404, times=ALWAYS)  # as if it had been removed since the assignment
    attempt = machine.run(script("", resume_from=saved["id"]), A2)
    exited = control.wait_for(A2, MessageKind.EXITED, LONG)
    assert exited.data["cause"] == "staging_failed"
    assert f"crucible resume {attempt.job} --checkpoint" in str(exited.data["text"])
