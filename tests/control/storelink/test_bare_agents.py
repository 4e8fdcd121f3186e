"""Real agents on a Python that has no package: what can be done without encryption is, all else is refused by name."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.harness import secret
from tests.control.storelink.harness import MailboxHarness

from crucible.backends.base import LaunchCall, LaunchRefused
from crucible.backends.bootstrap import AgentFile
from crucible.backends.context import BackendContext
from crucible.backends.local import LocalBackend
from crucible.backends.local.settings import LocalSettings
from crucible.control.agents.agent_file import build_agent
from crucible.core.lifecycle import JobState
from crucible.core.people.identity import OWNER
from crucible.core.secret import Secret
from crucible.wire.documents.bootstrap import Bootstrap

SECONDS = 60.0
STORES = {"bucket": {"urls": {}}, "open folder": {"folder": "store"}}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> AgentFile:
    return build_agent(tmp_path_factory.mktemp("agent"))


class Host:
    """A host as a place starts it, and the folder of its machine."""

    def __init__(self, folder: Path, python: str, agent: AgentFile, machine: str, store: dict[str, object]) -> None:
        self.work = folder / "machine"
        doc = {
            "machine": machine,
            "nonce": secret("nonce", machine).decode(),
            "work": str(self.work),
            "envs": str(folder / "envs"),
            "idle_exit_seconds": 1,
            "native_id": "i-1",
            "store": store,
        }
        file = folder / "bootstrap.json"
        file.write_text(json.dumps(doc))
        command = [python, "-I", str(agent.path), "host", "--bootstrap", str(file)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    started: list[Host] = []
    yield started
    for host in started:
        host.process.kill()
        host.process.communicate()


@pytest.mark.parametrize("kind", STORES)
def test_a_host_that_could_not_encrypt_ends_before_it_begins(
    tmp_path: Path, bare_python: str, agent: AgentFile, kind: str
) -> None:
    (tmp_path / "store").mkdir(0o755)
    store = {name: str(tmp_path / value) if value == "store" else value for name, value in STORES[kind].items()}
    host = Host(tmp_path, bare_python, agent, "mch-1", store)
    _, said = host.process.communicate(timeout=SECONDS)
    assert host.process.returncode == 2
    assert "has to be encrypted" in said
    assert f"{bare_python} -m pip install cryptography" in said
    assert not host.work.exists()
    assert not list((tmp_path / "store").iterdir())


def test_a_launch_on_this_computer_says_so(tmp_path: Path, bare_python: str, agent: AgentFile) -> None:
    (tmp_path / "store").mkdir(0o755)
    backend = LocalBackend(BackendContext(LocalSettings(), tmp_path, tmp_path / "agents.url", agent, bare_python))
    call = LaunchCall("local", "mch-1", "start_host", {"deployment": "dep-1", "machine_dir": "machines/mch-1"})
    with pytest.raises(LaunchRefused) as caught:
        backend.launch(
            call,
            [Bootstrap("", nonce="nonce", agents_url="http://127.0.0.1:1", store={"folder": str(tmp_path / "store")})],
        )
    assert "pip install cryptography" in str(caught.value.why)


@pytest.mark.parametrize("secrets", [{}, {"HF": "TOKEN"}], ids=["without secrets", "with secrets"])
async def test_in_a_private_folder_it_runs_what_has_no_secrets(
    mailbox_harness: MailboxHarness,
    tmp_path: Path,
    bare_python: str,
    agent: AgentFile,
    hosts: list[Host],
    secrets: dict[str, str],
) -> None:
    await mailbox_harness.harness.services.vault.set(OWNER, "default", "TOKEN", Secret("some value"))
    command = ("/bin/sh", "-c", f"echo $HF > {tmp_path / 'started'}; exit 7")
    job, machine = await mailbox_harness.new_machine(command=command, secrets=secrets)
    hosts.append(Host(tmp_path, bare_python, agent, machine, {"folder": str(mailbox_harness.folder)}))
    async with asyncio.timeout(SECONDS):
        while not (world := await mailbox_harness.harness.world(job)).job.state.terminal:
            await mailbox_harness.link.round()
            await asyncio.sleep(0.05)
    assert world.job.state is JobState.FAILED
    (attempt,) = world.attempts
    if not secrets:
        assert attempt.exit_code == 7
        return
    assert not (tmp_path / "started").exists()
    assert "the job's secrets cannot be read here" in attempt.detail
    assert f"{bare_python} -m pip install cryptography" in attempt.detail
