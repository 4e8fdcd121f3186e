"""What hosts can be like, and what a user is told about each."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.backends.conformance import DEPLOYMENT, end, eventually, launch_one, make_order, seen
from tests.ssh.harness import SshHarness
from tests.ssh.sshd import UID, USER, Network, SshHost, run

from crucible.backends.base import Finding, LaunchRefused, MachineOrder, MachineRef, PartlyUnreachable, Seen
from crucible.backends.node_identity import own_node_id
from crucible.backends.ssh.backend import SshBackend
from crucible.core.compute.offers import Need, Offer
from crucible.core.errors import Unreachable
from crucible.core.ids import Prefix, make_id

Use = Callable[..., SshHarness]


@pytest.fixture
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """A network for one test, as each has other hosts."""
    made = Network(tmp_path_factory.mktemp("ssh"))
    yield made
    made.close()


@pytest.fixture
def use(network: Network, tmp_path: Path) -> Iterator[Use]:
    """Make a harness with the hosts named."""
    made: list[SshHarness] = []

    def make(*hosts: object, **own: object) -> SshHarness:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(SshHarness(network, folder, *hosts, number=len(made), **own))
        return made[-1]

    yield make
    for harness in made:
        harness.clean()


def launch(backend: SshBackend, number: int = 1) -> MachineRef:
    return launch_one(backend, backend.call(make_order(backend, number)))


def launch_on(backend: SshBackend, offer: Offer, number: int = 1) -> MachineRef:
    order = MachineOrder(make_id(Prefix.MACHINE, 1, number), DEPLOYMENT, offer)
    return launch_one(backend, backend.call(order))


def only_offer(backend: SshBackend) -> Offer:
    (offer,) = backend.offers(Need())
    return offer


def findings(backend: SshBackend, name: str) -> list[Finding]:
    return [finding for finding in backend.check() if finding.what.startswith(f"{name}: ")]


def texts(backend: SshBackend, name: str = "box") -> str:
    return "\n".join(f"{each.what} {each.why} {each.fix}" for each in findings(backend, name))


class TestKeys:
    def test_the_key_is_shown_pinned_and_a_changed_one_refused(self, network: Network, use: Use) -> None:
        host = network.add("box")
        harness = use("box")
        backend = harness.backend()
        assert f"host key ED25519 {host.fingerprint}" in texts(backend)
        before = host.fingerprint
        host.new_host_key()
        changed = harness.backend()
        offer = only_offer(changed)
        assert "The host key of box has changed" in offer.why_not
        assert f"It shows ED25519 {host.fingerprint}, and ED25519 {before} is pinned." in offer.why_not
        (pin,) = (harness.home / "ssh" / "known_hosts").iterdir()
        assert f"rm {pin}" in offer.why_not
        pin.unlink()
        assert only_offer(harness.backend()).runnable

    def test_a_machine_on_a_host_with_a_changed_key_is_unreachable(self, network: Network, use: Use) -> None:
        host, backend = network.add("box"), use("box").backend()
        ref = launch(backend)
        host.new_host_key()
        (found,) = backend.poll([ref])
        assert found.seen is Seen.UNREACHABLE
        with pytest.raises(Unreachable, match="has changed"):
            backend.terminate(ref)

    def test_a_key_that_the_user_knows_is_the_only_one_accepted(self, network: Network, use: Use) -> None:
        host = network.add("box")
        kept = (host.folder / "etc-ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]
        network.known_hosts.write_text(f"{host.address} {' '.join(kept)}\n")
        assert only_offer(use("box").backend()).runnable
        host.new_host_key()
        assert "has changed" in only_offer(use("box").backend()).why_not

    def test_a_password_is_not_asked_for(self, network: Network, use: Use) -> None:
        host = network.add("box", sshd="PasswordAuthentication yes\n")
        (host.folder / "etc-ssh/authorized_keys").write_text("")
        offer = only_offer(use("box").backend())
        assert "asks for a password; a key is needed" in offer.why_not
        assert f"ssh-copy-id -F {network.config} box" in offer.why_not

    def test_a_key_that_the_host_does_not_know(self, network: Network, use: Use) -> None:
        host = network.add("box")
        (host.folder / "etc-ssh/authorized_keys").write_text("")
        assert "authorized_keys" in only_offer(use("box").backend()).why_not


class TestNames:
    def test_an_unknown_host_does_not_hide_the_others(self, network: Network, use: Use) -> None:
        network.add("box")
        offers = use("no-such-host.invalid", "box").backend().offers(Need())
        assert [offer.runnable for offer in offers] == [False, True]
        assert "no-such-host.invalid" in offers[0].why_not

    def test_a_host_that_does_not_answer_is_waited_for_once(self, network: Network, use: Use) -> None:
        host = network.add("box")
        host.kill()
        backend = use("box").backend()
        assert "does not answer" in only_offer(backend).why_not
        assert [finding.ok for finding in findings(backend, "box")] == [False]

    def test_two_names_for_one_host_are_one_node(self, network: Network, use: Use) -> None:
        host = network.add("box")
        backend = use("box", f"{USER}@{host.address}").backend()
        first, second = backend.offers(Need())
        assert first.node is not None
        assert second.node is not None
        assert first.node.id == second.node.id
        assert first.runnable
        assert second.why_not == "is the same computer as box, which is listed too"
        assert "the same computer as box" in texts(backend, host.address)
        assert [each.ok for each in backend.check() if not each.ok or each.warning] == [True]
        removed = backend.clean_up()
        assert [each.what for each in removed if not each.ok] == []
        assert not (host.disk / ".crucible").exists()

    def test_a_machine_is_found_by_another_name_of_its_host(self, network: Network, use: Use) -> None:
        host = network.add("box")
        harness = use("box")
        ref = launch(harness.backend())
        harness.own = harness.own.model_validate({**harness.own.model_dump(), "hosts": [f"{USER}@{host.address}"]})
        assert seen(harness.backend(), ref) is Seen.UP

    def test_a_host_that_was_removed_from_the_settings_keeps_its_machine(self, network: Network, use: Use) -> None:
        network.add("box")
        network.add("other")
        harness = use("box", "other")
        backend = harness.backend()
        ref = launch_on(backend, backend.offers(Need())[0])
        everything = harness.own
        harness.own = harness.own.model_validate({**harness.own.model_dump(), "hosts": ["other"]})
        without = harness.backend()
        (found,) = without.poll([ref])
        assert found.seen is Seen.UNREACHABLE
        assert "add it again" in found.detail
        harness.own = everything
        assert seen(harness.backend(), ref) is Seen.UP

    def test_a_jump_through_another_host(self, network: Network, use: Use) -> None:
        inner, jump = network.add("inner"), network.add("jump")
        network.more_config = "Host inner\n  ProxyJump jump\n"
        network.write_config()
        known = [(jump.folder / "etc-ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]]
        network.known_hosts.write_text("".join(f"{jump.address} {' '.join(key)}\n" for key in known))
        backend = use("inner").backend()
        ref = launch(backend)
        assert seen(backend, ref) is Seen.UP
        assert jump.address in run("nsenter", "-t", str(inner.process.pid), "--net", "ss", "-tn")  # type: ignore[union-attr]


class TestIdentity:
    def test_copies_of_a_computer_are_told_apart_by_their_host_key(self, network: Network, use: Use) -> None:
        first = network.add("box")
        network.add("copy", machine_id=first.machine_id)
        backend = use("box", "copy").backend()
        nodes = {offer.node.id for offer in backend.offers(Need()) if offer.node and offer.runnable}
        assert len(nodes) == 2
        assert "a copy of another computer" in texts(backend, "copy")
        assert "a copy" not in texts(backend, "box")

    def test_a_host_without_an_id_of_its_own_is_this_computer(self, network: Network, use: Use) -> None:
        network.add("here", machine_id=None, boot_id=None)
        backend = use("here").backend()
        offer = only_offer(backend)
        assert offer.node is not None
        assert offer.node.id == own_node_id()
        assert "shares its slots with the backend local" in texts(backend, "here")

    def test_without_a_machine_id_the_host_key_counts(self, network: Network, use: Use) -> None:
        network.add("box", machine_id="")
        first = only_offer(use("box").backend()).node
        assert first is not None
        assert first == only_offer(use("box").backend()).node

    def test_the_setting_node_wins(self, network: Network, use: Use) -> None:
        network.add("box")
        backend = use({"target": "box", "node": "rack-7", "max_attempts": 2}).backend()
        node = only_offer(backend).node
        assert node is not None
        assert (node.id, node.name, node.max_attempts) == ("rack-7", "box", 2)
        assert seen(backend, launch(backend)) is Seen.UP

    def test_a_host_that_is_down_keeps_its_node_for_the_next_server(self, network: Network, use: Use) -> None:
        host, harness = network.add("box"), use("box")
        before = only_offer(harness.backend())
        host.kill()
        after = only_offer(harness.backend())
        assert (after.node, after.capacity) == (before.node, before.capacity)
        assert not after.runnable

    def test_homes_that_are_shared_have_a_folder_for_each_host(self, network: Network, use: Use) -> None:
        first = network.add("box")
        network.add("other", home=first.disk)
        backend = use("box", "other").backend()
        refs = [launch_on(backend, offer, n) for n, offer in enumerate(backend.offers(Need()))]
        assert len(list(first.disk.glob(".crucible/hosts/*"))) == 2
        assert "other hosts may share its home" in texts(backend)
        harness = use("box")
        end(harness, backend, refs[0])
        assert [found.seen for found in backend.poll(refs)] == [Seen.GONE, Seen.UP]


class TestOddities:
    def test_a_login_shell_that_prints(self, network: Network, use: Use) -> None:
        host = network.add("box")
        (host.disk / ".bashrc").write_text('echo "Welcome to box!"; echo \'{"error": "no"}\' ; echo noise >&2\n')
        backend = use("box").backend()
        assert seen(backend, launch(backend)) is Seen.UP

    def test_a_login_shell_that_runs_nothing(self, network: Network, use: Use) -> None:
        network.add("box", shell="/usr/sbin/nologin")
        assert "runs no programs for us" in only_offer(use("box").backend()).why_not

    @pytest.mark.parametrize("shell", ["/bin/dash", "/bin/csh", "/usr/bin/fish", "/bin/zsh"])
    def test_other_login_shells(self, network: Network, use: Use, shell: str) -> None:
        if not os.path.exists(shell):
            pytest.skip(f"{shell} is not installed")
        network.add("box", shell=shell)
        assert only_offer(use("box").backend()).runnable

    def test_programs_in_tmp_cannot_be_executed(self, network: Network, use: Use) -> None:
        network.add("box", tmp_options="noexec")
        harness = use("box")
        backend = harness.backend()
        assert "programs in /tmp cannot be executed" in texts(backend)
        ref = launch(backend)
        (pid,) = harness.host_pids(ref.machine)
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        (folder,) = (value for value in variables if value.startswith(b"TMPDIR="))
        assert b"/.crucible/" in folder

    def test_one_session_for_each_connection_is_enough(self, network: Network, use: Use) -> None:
        network.add("box", sshd="MaxSessions 1\n")
        harness = use("box")
        backend = harness.backend()
        ref = launch(backend)
        assert seen(backend, ref) is Seen.UP
        eventually(lambda: any("/claim" in call for call in harness.listener.calls))
        end(harness, backend, ref)

    def test_without_sockets_the_tunnel_is_a_port_and_check_warns(self, network: Network, use: Use) -> None:
        network.add("box", sshd="AllowStreamLocalForwarding no\n")
        harness = use("box")
        backend = harness.backend()
        assert "AllowStreamLocalForwarding yes" in texts(backend)
        assert all(finding.ok for finding in findings(backend, "box"))
        launch(backend)
        eventually(lambda: any("/claim" in call for call in harness.listener.calls))

    def test_without_any_forwarding_the_launch_is_refused(self, network: Network, use: Use) -> None:
        host = network.add("box", sshd="DisableForwarding yes\n")
        backend = use("box").backend()
        assert "AllowStreamLocalForwarding yes" in texts(backend)
        with pytest.raises(LaunchRefused, match="lets no agent reach the server"):
            launch(backend)
        assert host.processes() == {}

    def test_no_python(self, network: Network, use: Use) -> None:
        network.add("box", missing=[str(path) for path in Path("/usr/bin").glob("python3*") if path.is_file()])
        offer = only_offer(use("box").backend())
        assert "needs Python 3.9 or newer" in offer.why_not
        assert "apt-get install python3" in offer.why_not

    def test_another_system(self, network: Network, use: Use) -> None:
        network.add("mac", system="Darwin")
        assert "The host mac runs Darwin. Only Linux hosts can be used." in only_offer(use("mac").backend()).why_not

    def test_a_full_disk(self, network: Network, use: Use, small_disk: Path) -> None:
        host = network.add("box", home=small_disk)
        fill = small_disk / "fill"
        harness = use("box")
        backend = harness.backend()
        offer = only_offer(backend)
        fill_up(fill)
        assert only_offer(harness.backend()).runnable, "to look at a host needs no space there"
        with pytest.raises(LaunchRefused, match="no space left on box"):
            launch_on(backend, offer)
        assert host.processes() == {}
        fill.unlink()
        assert seen(backend, launch_on(backend, offer)) is Seen.UP


class TestGpus:
    SMI = """case "$*" in
*query-gpu*) printf '0, GPU-a, NVIDIA A100, 40960, 3\\n1, GPU-b, NVIDIA A100, 40960, %s\\n' "$(cat /home/ann/used)";;
*compute-apps*) cat /home/ann/apps;;
esac"""

    @pytest.fixture
    def host(self, network: Network) -> SshHost:
        host = network.add("box", gpus=self.SMI)
        (host.disk / "used").write_text("3")
        (host.disk / "apps").write_text("")
        return host

    def test_they_are_found(self, host: SshHost, use: Use) -> None:
        capacity = only_offer(use("box").backend()).capacity
        assert (capacity.gpus, capacity.gpu_name, capacity.gpu_memory_bytes) == ((0, 1), "NVIDIA A100", 40960 * 1024**2)

    def test_the_load_of_others_is_waited_for(self, host: SshHost, use: Use) -> None:
        (host.disk / "used").write_text("30000")
        (host.disk / "apps").write_text("GPU-b, 4242, 29000\n")
        backend = use("box").backend()
        assert "GPU 1 is used by process 4242 of others" in texts(backend)
        offer = only_offer(backend)
        assert offer.node is not None
        assert (offer.runnable, offer.node.busy_gpus) == (True, (1,))

    def test_memory_that_no_visible_process_uses_counts_too(self, host: SshHost, use: Use) -> None:
        (host.disk / "used").write_text("30000")
        assert "GPU 1 is used by others, with 30000 MiB" in texts(use("box").backend())


class TestAHostThatIsDown:
    def test_the_machines_of_the_other_hosts_are_listed(self, network: Network, use: Use) -> None:
        box, other = network.add("box"), network.add("other")
        backend = use("box", "other").backend()
        offers = {offer.instance_type: offer for offer in backend.offers(Need())}
        refs = [launch_on(backend, offers[name], number) for number, name in enumerate(("box", "other"), start=1)]
        assert set(backend.owned(DEPLOYMENT)) == set(refs)
        other.cut()
        with pytest.raises(PartlyUnreachable, match="Not every host answers") as caught:
            backend.owned(DEPLOYMENT)
        assert (caught.value.found, caught.value.why) == ((refs[0],), "Nothing is known about machines on other.")
        assert [found.seen for found in backend.poll(refs)] == [Seen.UP, Seen.UNREACHABLE]
        other.join()
        assert box.answers()


class TestDeployments:
    def test_two_deployments_on_one_host_do_not_touch_each_other(self, network: Network, use: Use) -> None:
        host, first, second = network.add("box"), use("box"), use("box")
        one, two = first.backend(), second.backend()
        ours, theirs = launch(one), launch(two, 2)
        assert [ref.machine for ref in one.owned(DEPLOYMENT)] == [ours.machine]
        end(first, one, ours)
        assert seen(two, theirs) is Seen.UP
        assert all(finding.ok for finding in one.clean_up())
        assert seen(two, theirs) is Seen.UP
        end(second, two, theirs)
        assert all(finding.ok for finding in two.clean_up())
        assert not (host.disk / ".crucible").exists()


class TestLeaving:
    def test_disconnecting_removes_everything_and_says_so(self, network: Network, use: Use) -> None:
        host, harness = network.add("box"), use("box")
        backend = harness.backend()
        ref = launch(backend)
        (refused,) = backend.clean_up()
        assert not refused.ok
        assert ref.machine in refused.why
        end(harness, backend, ref)
        assert list(host.disk.rglob("agent-*.pyz")), "the agent's file is kept for the next job"
        (removed,) = backend.clean_up()
        assert removed.ok
        assert "/home/ann/.crucible/hosts/" in removed.what
        assert not (host.disk / ".crucible").exists()
        assert (host.processes(), host.files_left()) == ({}, [])
        assert not any((harness.home / "ssh").rglob("*pin*"))
        assert list((harness.home / "ssh").iterdir()) == []

    def test_caches_are_kept_up_to_their_limit(self, network: Network, use: Use) -> None:
        host, harness = network.add("box"), use("box", cache_bytes=3 * 1024 * 1024)
        backend = harness.backend()
        ref = launch(backend)
        state = harness.folder(ref.machine).parent.parent
        for age, name in enumerate(("newest", "old", "oldest")):
            env = state / "envs" / name
            env.mkdir(parents=True)
            (env / "data").write_bytes(bytes(1024 * 1024))
            for path in (state / "envs", env, env / "data"):
                os.chown(path, UID, UID)
            os.utime(env, (10**9 - age, 10**9 - age))
        end(harness, backend, ref)
        assert sorted(path.name for path in (state / "envs").iterdir()) == ["newest", "old"]
        assert host.files_left() == []


class TestCuts:
    def test_a_dead_connection_is_made_again_and_the_agent_follows(self, network: Network, use: Use) -> None:
        network.add("box")
        harness = use("box")
        backend = harness.backend()
        ref = launch(backend)
        eventually(lambda: any("/desired" in call for call in harness.listener.calls))
        subprocess.run(["pkill", "-9", "-f", f"ControlMaster=yes.*{harness.home}"], check=True)
        harness.listener.calls.clear()
        eventually(lambda: seen(backend, ref) is Seen.UP)
        eventually(lambda: any("/desired" in call for call in harness.listener.calls), 60)

    def test_a_host_that_returns_has_what_is_really_there(self, network: Network, use: Use) -> None:
        host, harness = network.add("box"), use("box")
        backend = harness.backend()
        working, idle = launch(backend), launch(backend, 2)
        harness.leave_work(working)
        host.kill()
        assert [found.seen for found in backend.poll([working, idle])] == [Seen.UNREACHABLE] * 2
        host.restart()
        eventually(lambda: seen(backend, working) is Seen.HALTED)
        assert seen(backend, idle) is Seen.GONE
        call = backend.call(make_order(backend, 1))
        assert launch_one(backend, call) == working
        assert seen(backend, working) is Seen.UP

    def test_a_launch_on_a_host_that_is_off_is_refused(self, network: Network, use: Use) -> None:
        host, backend = network.add("box"), use("box").backend()
        call = backend.call(make_order(backend, 1))
        host.kill()
        with pytest.raises(LaunchRefused, match="does not answer"):
            launch_one(backend, call)


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 - the write that fails is the one that fills it


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder))
    yield folder
    run("umount", "-l", str(folder))
