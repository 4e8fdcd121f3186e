"""Test a real runner whose machine ends, or whose program is asked to save, by the messages that arrive."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.agents_server import ALWAYS, AgentsServer
from tests.agent.metadata import Metadata
from tests.agent.real_machine import A1, Machine, script
from tests.agent.waiting import poll

from crucible.core.compute.resources import Resources
from crucible.wire.documents.messages import MessageKind
from crucible.wire.process import Process

pytestmark = pytest.mark.enable_socket

SECONDS = 60.0
"""Timeout for a busy machine, in seconds."""

KEYS = ("pid", "start_time")

SAVES = """
import os, signal, sys, time
def save(*args):
    print('saved', os.path.exists(os.environ['CRUCIBLE_STOP_FILE']))
    open(os.environ['CRUCIBLE_OUTPUT_DIR'] + '/state', 'w').write('step 7')
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print('ready', flush=True)
time.sleep(600)
"""


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    metadata = Metadata()
    yield metadata
    metadata.close()


@pytest.fixture
def machine(tmp_path: Path, control: AgentsServer, metadata: Metadata, hosts: None) -> Iterator[Machine]:
    machine = Machine(tmp_path, control, interruption_url=metadata.url)
    yield machine
    machine.close()


def wait_ready(control: AgentsServer) -> None:
    control.wait_output(A1, b"ready", SECONDS)


def told(control: AgentsServer) -> list[MessageKind]:
    """Return the messages in order, from the start of the process on."""
    wanted = (MessageKind.STARTED, MessageKind.NOTICE, MessageKind.ARTIFACT, MessageKind.EXITED, MessageKind.ENDED)
    return [message.kind for message in control.attempts[A1].messages if message.kind in wanted]


def test_a_program_that_saves_on_notice_is_interrupted(
    machine: Machine, control: AgentsServer, metadata: Metadata
) -> None:
    machine.start_host()
    machine.run(script(SAVES))
    wait_ready(control)
    metadata.announce(100)
    exited = control.wait_for(A1, MessageKind.EXITED, SECONDS)
    assert (exited.data["code"], exited.data["cause"]) == (0, "interrupted")
    control.wait_for(A1, MessageKind.ENDED, SECONDS)
    attempt = control.attempts[A1]
    assert told(control) == [
        MessageKind.STARTED,
        MessageKind.NOTICE,
        MessageKind.EXITED,
        MessageKind.ARTIFACT,
        MessageKind.ENDED,
    ]
    assert attempt.of(MessageKind.NOTICE)[0].data["seconds"] == 100.0
    assert attempt.log() == b"ready\nsaved True\n"
    assert attempt.artifacts == {"state": b"step 7"}


def test_a_program_that_saves_nothing_is_killed_in_time(
    machine: Machine, control: AgentsServer, metadata: Metadata
) -> None:
    machine.start_host()
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'); time.sleep(600)"
    machine.run(script(ignores, grace_seconds=600.0))
    wait_ready(control)
    metadata.announce(3)
    exited = control.wait_for(A1, MessageKind.EXITED, SECONDS)
    assert (exited.data["signal"], exited.data["cause"]) == (signal.SIGKILL, "interrupted")
    control.wait_for(A1, MessageKind.ENDED, SECONDS)


def test_a_machine_that_is_going_starts_nothing(machine: Machine, control: AgentsServer, metadata: Metadata) -> None:
    metadata.announce(100)
    control.faults.refuse("*/bundles/*", times=ALWAYS)
    machine.start_host()
    machine.run(script(SAVES, bundle=control.add_bundle(b"code")))
    exited = control.wait_for(A1, MessageKind.EXITED, SECONDS)
    assert exited.data["cause"] == "interrupted"
    control.wait_for(A1, MessageKind.ENDED, SECONDS)
    assert told(control) == [MessageKind.NOTICE, MessageKind.EXITED, MessageKind.ENDED]


def test_before_the_machines_time_is_over_the_program_saves(machine: Machine, control: AgentsServer) -> None:
    control.set_terms(ends_in=10.0)
    machine.start_host()
    machine.run(script(SAVES))
    exited = control.wait_for(A1, MessageKind.EXITED, SECONDS)
    assert exited.data["cause"] == "suspended"


def test_the_machines_time_may_be_told_to_the_runner(machine: Machine, control: AgentsServer) -> None:
    terms: dict[str, float | None] = {}  # our listener says nothing of them to runners; the store's channel does
    control.faults.change("*/attempts/*/desired", lambda wishes: {**wishes, **terms})
    machine.start_host()
    machine.run(script(SAVES))
    wait_ready(control)
    terms.update(ends_in=0.5, lease_seconds=None)
    control.ask_checkpoint(A1)
    exited = control.wait_for(A1, MessageKind.EXITED, SECONDS)
    assert (exited.data["code"], exited.data["cause"]) == (0, "suspended")


def test_a_program_saves_at_its_time_limit(machine: Machine, control: AgentsServer) -> None:
    machine.start_host()
    # Long enough for a slow machine to have started the program.
    machine.run(script(SAVES, resources=Resources(seconds=5)))
    exited = control.wait_for(A1, MessageKind.EXITED, SECONDS)
    assert (exited.data["code"], exited.data["cause"]) == (0, "time_limit")
    control.wait_for(A1, MessageKind.ENDED, SECONDS)
    assert control.attempts[A1].log() == b"ready\nsaved True\n"


def test_a_lease_that_came_later_fences(machine: Machine, control: AgentsServer) -> None:
    terms: dict[str, float] = {}
    control.faults.change("*/attempts/*/desired", lambda wishes: {**wishes, **terms})
    machine.start_host()
    machine.run(script(SAVES))
    wait_ready(control)
    asked = len(control.requests)
    terms.update(lease_seconds=0.5)
    control.ask_checkpoint(A1)
    # Its next question shows that the answer was heard.
    control.wait(lambda: any(path.endswith("/0/desired") for _, path in control.requests[asked:]), SECONDS)
    control.down()
    poll((machine.folder() / "exited").exists, SECONDS)
    control.start()
    exited = control.wait_for(A1, MessageKind.EXITED, SECONDS)
    assert (exited.data["code"], exited.data["cause"]) == (0, "fenced")


ASKS = """
import crucible, time
print('ready', flush=True)
count = 0
while count < 2:
    if crucible.should_checkpoint():
        count += 1
        print('saved', count, flush=True)
    time.sleep(0.01)
"""


def test_each_checkpoint_asked_for_is_seen_by_the_program(machine: Machine, control: AgentsServer) -> None:
    machine.start_host()
    machine.run(script(ASKS))
    wait_ready(control)
    control.ask_checkpoint(A1)
    control.wait_output(A1, b"saved 1", SECONDS)
    control.ask_checkpoint(A1)
    exited = control.wait_for(A1, MessageKind.EXITED, SECONDS)
    assert (exited.data["code"], exited.data["cause"]) == (0, "exit")
    control.wait_for(A1, MessageKind.ENDED, SECONDS)
    assert control.attempts[A1].log() == b"ready\nsaved 1\nsaved 2\n"


SIGNALLED = """
import os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *args: sys.exit(9))
print('ready', flush=True)
now = os.environ['CRUCIBLE_CHECKPOINT_NOW']
while not os.path.exists(now): time.sleep(0.01)
time.sleep(float(os.environ['LINGER']))
"""


@pytest.mark.parametrize(
    ("env", "code"), [({"CRUCIBLE_CHECKPOINT_SIGNAL": "USR1", "LINGER": "600"}, 9), ({"LINGER": "1"}, 0)]
)
def test_a_signal_only_to_a_program_that_wants_it(
    machine: Machine, control: AgentsServer, env: dict[str, str], code: int
) -> None:
    machine.start_host()
    machine.run(script(SIGNALLED, env=env))
    wait_ready(control)
    control.ask_checkpoint(A1)
    exited = control.wait_for(A1, MessageKind.EXITED, SECONDS)
    assert (exited.data["code"], exited.data["cause"]) == (code, "exit")


def test_without_its_folder_the_machine_ends(machine: Machine, control: AgentsServer) -> None:
    """Host, runner and program: nothing of them could be saved any more, and nothing is made anew."""
    host = machine.start_host()
    machine.run(script("import time; print('ready', flush=True); time.sleep(600)"))
    wait_ready(control)
    runner = machine.runner()
    program = Process(**{name: json.loads((machine.folder() / "process.json").read_text())[name] for name in KEYS})
    shutil.rmtree(machine.work)
    poll(lambda: not program.alive, SECONDS)
    poll(lambda: not runner.alive, SECONDS)
    assert host.wait(SECONDS) == 0
    assert not machine.work.exists()


def test_a_runner_without_a_host_ends_too(machine: Machine, control: AgentsServer) -> None:
    host = machine.start_host()
    machine.run(script("import time; print('ready', flush=True); time.sleep(600)"))
    wait_ready(control)
    runner = machine.runner()
    host.kill()
    host.wait()
    machine.work.rename(machine.work.with_name("elsewhere"))
    poll(lambda: not runner.alive, SECONDS)
