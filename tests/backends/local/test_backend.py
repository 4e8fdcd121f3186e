"""Test the backend `local`: the conformance suite, and what is special about this computer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.backends.conformance import (
    BOOTSTRAP,
    DEPLOYMENT,
    BackendConformance,
    end,
    eventually,
    find_one,
    is_gone,
    launch_one,
    make_order,
    seen,
)
from tests.backends.local.place import FakeProbe, LocalHarness

from crucible.backends.base import (
    LaunchCall,
    LaunchRefused,
    LaunchUnknown,
    MachineRef,
    NotYetGone,
    Reach,
    Seen,
)
from crucible.backends.local import LocalBackend
from crucible.backends.local.backend import CopiedFolder
from crucible.backends.local.devices import Gpu
from crucible.backends.node_identity import own_node_id
from crucible.core.compute.offers import Need, Node, Nodes
from crucible.core.compute.resources import Capacity, GiB, Resources
from crucible.core.errors import BadInput
from crucible.core.scheduling.slots import why_too_small
from crucible.wire.machines.folder import write_doc
from crucible.wire.machines.processes import group_members
from crucible.wire.process import Process, find_process, start_time


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LocalHarness]:
    made = LocalHarness(tmp_path)
    yield made
    made.clean()


@pytest.fixture
def backend(harness: LocalHarness) -> LocalBackend:
    return harness.backend()


def launch(backend: LocalBackend) -> MachineRef:
    return launch_one(backend, backend.call(make_order(backend, 1)))


def process_of(path: Path) -> Process:
    doc = json.loads(path.read_text())
    return Process(doc["pid"], str(doc["start_time"]))


class TestLocal(BackendConformance):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[LocalHarness]:
        made = LocalHarness(tmp_path)
        yield made
        made.clean()


class TestOffers:
    def test_capabilities(self, backend: LocalBackend) -> None:
        can = backend.capabilities
        assert (can.reach, can.capacity) == (Reach.SAME_COMPUTER, Nodes(shared=True))
        assert can.shares_machines
        assert can.in_place
        assert not can.bills

    def test_its_node_is_this_computer(self, backend: LocalBackend) -> None:
        (offer,) = backend.offers(Need())
        assert offer.node == Node(own_node_id(), "this computer")

    def test_a_check_names_what_it_found(self, harness: LocalHarness) -> None:
        probe = FakeProbe(cuda=[Gpu(0, "A100", 40 * GiB)])
        size, folder = LocalBackend(harness.context(), probe).check()
        assert "1 x A100" in size.what
        assert folder.ok

    def test_there_is_one_free_offer(self, backend: LocalBackend) -> None:
        (offer,) = backend.offers(Need(Resources(cpus=4, memory_bytes=8 * GiB)))
        assert offer.runnable
        assert (offer.region, offer.instance_type, offer.rate) == ("here", "this computer", 0)
        assert offer.capacity.cpus == 4

    @pytest.mark.parametrize(
        ("need", "why"),
        [
            (Resources(gpus=1), "asks for 1 GPU; this computer has none"),
            (Resources(cpus=8), "asks for 8 CPUs; this computer has 4"),
            (Resources(memory_bytes=9 * GiB), "asks for 9 GiB of memory; this computer has 8 GiB"),
            (Resources(cpus=5, gpus=2), "asks for 5 CPUs and 2 GPUs; this computer has 4 and none"),
        ],
    )
    def test_too_much_is_said_with_both_numbers(self, backend: LocalBackend, need: Resources, why: str) -> None:
        assert [offer.why_not for offer in backend.offers(Need(need))] == [why]

    def test_gpus_have_to_be_large_enough(self) -> None:
        has = Capacity(cpus=1, memory_bytes=GiB, gpus=(0, 1), gpu_memory_bytes=16 * GiB)
        need = Resources(gpus=1, gpu_memory_bytes=40 * GiB)
        assert why_too_small(need, has) == "asks for GPUs with 40 GiB; this computer has 16 GiB on each"
        assert why_too_small(Resources(gpus=3), has) == "asks for 3 GPUs; this computer has 2"
        assert not why_too_small(Resources(gpus=2, gpu_memory_bytes=16 * GiB), has)

    def test_gpu_memory_the_driver_does_not_tell_excludes_nothing(self) -> None:
        has = Capacity(cpus=1, memory_bytes=GiB, gpus=(0,))
        assert not why_too_small(Resources(gpus=1, gpu_memory_bytes=40 * GiB), has)


class TestLaunch:
    def test_the_host_is_told_what_it_needs_and_nobody_else(self, harness: LocalHarness, backend: LocalBackend) -> None:
        ref = launch(backend)
        path = harness.folder(ref) / "bootstrap.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert json.loads(path.read_text()) == {
            "machine": ref.machine,
            "nonce": BOOTSTRAP.nonce,
            "agents_url": BOOTSTRAP.agents_url,
            "agents_url_file": str(harness.home / "agents.url"),
            "work": str(harness.folder(ref)),
            "envs": str(harness.home / "envs"),
            "uv": None,
            "idle_exit_seconds": 60,
            "native_id": f"local:{ref.machine}",
            "shared": True,
            "elsewhere": False,
            "interruption_url": None,
            "store": None,
        }

    def test_the_host_is_nobodys_child_and_has_its_own_session(
        self, harness: LocalHarness, backend: LocalBackend
    ) -> None:
        pid = process_of(harness.folder(launch(backend)) / "host.json").pid
        assert psutil.Process(pid).ppid() != os.getpid()
        assert os.getsid(pid) == pid
        assert Path(f"/proc/{pid}/cwd").resolve() == harness.folder(launch(backend)).resolve()

    def test_the_hosts_output_goes_to_its_log(self, harness: LocalHarness, backend: LocalBackend) -> None:
        folder = harness.folder(launch(backend))
        log = str(folder / "host.log")
        assert json.loads((folder / "fds.json").read_text()) == ["/dev/null", log, log]

    def test_the_host_inherits_no_open_file(self, harness: LocalHarness, backend: LocalBackend, tmp_path: Path) -> None:
        with open(tmp_path / "secret", "w") as file:
            os.set_inheritable(file.fileno(), True)
            pid = process_of(harness.folder(launch(backend)) / "host.json").pid
        targets = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
        assert str(tmp_path / "secret") not in targets
        assert not any(target.endswith("launch.lock") for target in targets)

    def test_the_host_sees_harmless_variables_alone(self, harness: LocalHarness) -> None:
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": "/somewhere",
            "LC_ALL": "C.UTF-8",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "CRUCIBLE_TOKEN": "secret",
            "HTTPS_PROXY": "http://user:secret@proxy:3128",
            "NO_PROXY": "localhost",
        }
        folder = harness.folder(launch(harness.backend(environ=environ)))
        seen_by_host = json.loads((folder / "environ.json").read_text())
        assert seen_by_host.items() >= {"PATH": "/usr/bin:/bin", "HOME": "/somewhere", "NO_PROXY": "localhost"}.items()
        assert "secret" not in json.dumps(seen_by_host)
        assert not [name for name in seen_by_host if name.startswith("CRUCIBLE_")]

    def test_without_variables_the_host_still_has_a_path(self, harness: LocalHarness) -> None:
        folder = harness.folder(launch(harness.backend(environ={})))
        assert "/usr/bin" in json.loads((folder / "environ.json").read_text())["PATH"]

    def test_an_agent_that_breaks_is_refused_with_its_last_words(
        self, harness: LocalHarness, backend: LocalBackend
    ) -> None:
        harness.set_mode("broken")
        with pytest.raises(LaunchRefused, match="the agent is broken"):
            launch(backend)
        assert backend.owned(DEPLOYMENT) == []
        assert list((harness.home / "machines").iterdir()) == []

    def test_a_missing_interpreter_is_refused(self, harness: LocalHarness) -> None:
        backend = harness.backend(python="/no/such/python")
        with pytest.raises(LaunchRefused, match="/no/such/python"):
            launch(backend)
        assert backend.owned(DEPLOYMENT) == []

    def test_a_broken_agent_does_not_give_up_a_machine_with_work(
        self, harness: LocalHarness, backend: LocalBackend
    ) -> None:
        ref = launch(backend)
        harness.leave_work(ref)
        harness.kill_host(ref)
        harness.set_mode("broken")
        with pytest.raises(LaunchUnknown):
            launch(backend)
        assert backend.owned(DEPLOYMENT) == [ref]
        harness.set_mode("")
        assert launch(backend) == ref
        assert seen(backend, ref) is Seen.UP

    def test_a_host_that_does_not_come_up_is_unknown_and_can_be_ended(self, harness: LocalHarness) -> None:
        harness.set_mode("silent")
        backend = LocalBackend(harness.context(), FakeProbe(), host_seconds=0.1)
        call = backend.call(make_order(backend, 1))
        with pytest.raises(LaunchUnknown):
            launch_one(backend, call)
        ref = find_one(backend, call.token)
        assert ref is not None
        assert seen(backend, ref) is Seen.STARTING
        end(harness, backend, ref)
        assert harness.count(ref.machine) == 0

    def test_a_call_of_somebody_else_is_refused(self, backend: LocalBackend) -> None:
        for call in (
            LaunchCall("local", "../escape", "start_host", {"deployment": DEPLOYMENT}),
            LaunchCall("local", "mch-1", "run_instances", {"deployment": DEPLOYMENT}),
            LaunchCall("local", "mch-1", "start_host", {}),
        ):
            with pytest.raises(BadInput):
                launch_one(backend, call)

    def test_a_state_folder_that_cannot_be_written_is_refused(
        self, harness: LocalHarness, backend: LocalBackend
    ) -> None:
        (harness.home / "machines").write_text("in the way")
        with pytest.raises(LaunchRefused):
            launch(backend)


class TestPoll:
    def test_a_runner_without_a_host_is_halted(self, harness: LocalHarness, backend: LocalBackend) -> None:
        ref = launch(backend)
        harness.start_runner(ref)
        harness.kill_host(ref)
        assert seen(backend, ref) is Seen.HALTED

    def test_attempts_that_are_done_are_nothing_to_come_back_for(
        self, harness: LocalHarness, backend: LocalBackend
    ) -> None:
        ref = launch(backend)
        (harness.leave_work(ref) / "done").touch()
        (harness.folder(ref) / "attempts" / "att-2-0").mkdir()  # made, but no assignment was written
        harness.kill_host(ref)
        assert seen(backend, ref) is Seen.GONE

    def test_a_pid_that_is_used_again_is_not_our_host(self, harness: LocalHarness, backend: LocalBackend) -> None:
        ref = launch(backend)
        harness.kill_host(ref)
        impostor = {"pid": os.getpid(), "start_time": "1"}
        (harness.folder(ref) / "host.json").write_text(json.dumps(impostor))
        assert seen(backend, ref) is Seen.GONE

    def test_a_living_process_without_the_lock_is_not_our_host(
        self, harness: LocalHarness, backend: LocalBackend
    ) -> None:
        ref = launch(backend)
        harness.kill_host(ref)
        me = {"pid": os.getpid(), "start_time": start_time(os.getpid())}
        (harness.folder(ref) / "host.json").write_text(json.dumps(me))
        assert seen(backend, ref) is Seen.GONE

    def test_broken_files_are_no_machine(self, harness: LocalHarness, backend: LocalBackend) -> None:
        ref = launch(backend)
        end(harness, backend, ref)
        harness.folder(ref).mkdir()
        (harness.folder(ref) / "tags.json").write_text('{"deployment": ')
        assert seen(backend, ref) is Seen.GONE
        assert backend.owned(DEPLOYMENT) == []
        backend.terminate(ref)
        assert not harness.folder(ref).exists()


class TestTerminate:
    def test_it_returns_soon(self, harness: LocalHarness, backend: LocalBackend) -> None:
        harness.set_mode("deaf")
        ref = launch(backend)
        before = time.monotonic()
        with pytest.raises(NotYetGone):
            backend.terminate(ref)
        assert time.monotonic() - before < 5  # generous: the machine that runs the tests may be busy

    def test_a_deaf_host_is_killed_after_the_grace_and_not_before(
        self, harness: LocalHarness, backend: LocalBackend
    ) -> None:
        harness.set_mode("deaf")
        ref = launch(backend)
        for _ in range(3):
            assert not is_gone(backend, ref)
            harness.now += 3
        assert harness.count(ref.machine) == 1
        harness.now += 1
        eventually(lambda: is_gone(backend, ref))
        assert harness.count(ref.machine) == 0

    def test_the_next_server_goes_on_where_the_last_one_stopped(
        self, harness: LocalHarness, backend: LocalBackend
    ) -> None:
        harness.set_mode("deaf")
        ref = launch(backend)
        assert not is_gone(backend, ref)
        harness.hurry()
        eventually(lambda: is_gone(harness.backend(), ref))

    def test_a_restarted_computer_has_no_grace_left(self, harness: LocalHarness, backend: LocalBackend) -> None:
        harness.set_mode("deaf")
        ref = launch(backend)
        assert not is_gone(backend, ref)
        harness.now = 1.0
        eventually(lambda: is_gone(backend, ref))

    def test_the_users_processes_end_too(self, harness: LocalHarness, backend: LocalBackend) -> None:
        ref = launch(backend)
        folder = harness.start_runner(ref)
        group = group_members(process_of(folder / "process.json"))
        assert len(group) == 2
        eventually(lambda: is_gone(backend, ref))
        assert not any(process.alive for process in group)
        assert not harness.folder(ref).exists()

    def test_a_child_that_ignores_term_and_hides_is_killed(self, harness: LocalHarness, backend: LocalBackend) -> None:
        ref = launch(backend)
        folder = harness.start_runner(ref, deaf=True)
        group = group_members(process_of(folder / "process.json"))
        assert len(group) == 2
        assert not is_gone(backend, ref)
        harness.hurry()
        eventually(lambda: is_gone(backend, ref))
        assert not any(process.alive for process in group)

    def test_what_left_its_group_is_found_by_its_variable(self, harness: LocalHarness, backend: LocalBackend) -> None:
        ref = launch(backend)
        (harness.leave_work(ref, "att-stray") / "done").touch()
        stray = harness.start_stray("att-stray")
        eventually(lambda: is_gone(backend, ref))
        assert stray.wait(30) == -signal.SIGTERM

    def test_others_with_the_same_numbers_are_left_alone(self, harness: LocalHarness, backend: LocalBackend) -> None:
        ref = launch(backend)
        stranger = harness.start_stray("att-of-somebody-else")
        folder = harness.leave_work(ref)
        (folder / "process.json").write_text(json.dumps({"pid": stranger.pid, "start_time": "1"}))
        (folder / "runner.json").write_text(json.dumps({"pid": stranger.pid, "start_time": "1"}))
        end(harness, backend, ref)
        stranger.send_signal(signal.SIGUSR1)
        assert stranger.wait(30) == -signal.SIGUSR1

    def test_a_machine_that_is_being_ended_is_not_started_again(
        self, harness: LocalHarness, backend: LocalBackend
    ) -> None:
        harness.set_mode("deaf")
        ref = launch(backend)
        assert not is_gone(backend, ref)
        with pytest.raises(LaunchRefused):
            launch(backend)

    def test_folders_a_job_locked_are_removed(self, harness: LocalHarness, backend: LocalBackend) -> None:
        ref = launch(backend)
        locked = harness.folder(ref) / "attempts" / "att-1-0" / "work" / "locked"
        locked.mkdir(parents=True)
        (locked / "file").touch()
        (locked.parent / "link").symlink_to(harness.home)
        locked.chmod(0o500)
        end(harness, backend, ref)
        assert not harness.folder(ref).exists()
        assert harness.home.exists()


class TestCopies:
    def test_a_copy_of_a_folder_whose_machine_runs_is_refused(self, harness: LocalHarness, tmp_path: Path) -> None:
        backend = harness.backend()
        launch(backend)
        copy = tmp_path / "copy"
        shutil.copytree(harness.context().home, copy)
        with pytest.raises(CopiedFolder, match="copy of a state folder"):
            LocalBackend(replace(harness.context(), home=copy), FakeProbe())
        assert harness.backend().owned(DEPLOYMENT), "the original itself is fine"

    def test_a_copy_is_accepted_once_nothing_runs(self, harness: LocalHarness, tmp_path: Path) -> None:
        backend = harness.backend()
        ref = launch(backend)
        copy = tmp_path / "copy"
        shutil.copytree(harness.context().home, copy)
        end(harness, backend, ref)
        LocalBackend(replace(harness.context(), home=copy), FakeProbe())

    def test_a_host_that_ends_slowly_is_no_copy(self, harness: LocalHarness) -> None:
        """A process releases its locks before it has ended."""
        with subprocess.Popen(["sleep", "1"]) as ending:
            folder = harness.context().home / "machines" / "mch-1"
            folder.mkdir(parents=True)
            host = find_process(ending.pid)
            assert host is not None
            write_doc(folder / "host.json", {"pid": host.pid, "start_time": host.start_time})
            harness.backend()
            assert not host.alive
