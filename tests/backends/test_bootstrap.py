"""Test the bootstrap of remote machines: the script is run by real shells, with an agent that notes how it started."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import ssl
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.backends.agent_listener import Listener, UnixServer, agent_route, listening, serving
from tests.certificates import make_certificate

from crucible.backends.bootstrap import (
    AgentFile,
    BootFailure,
    fill_script,
    find_agent_sha256,
    script_template,
)
from crucible.wire.documents.bootstrap import Bootstrap
from crucible.wire.http.client import unix_url

pytestmark = pytest.mark.enable_socket

AGENT = """\
import json, os, sys
bootstrap = json.load(open(sys.argv[-1]))
stdin = os.readlink("/proc/self/fd/0")
try:
    children = os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    children = None
print(json.dumps({"argv": sys.argv, "flags": sys.flags.isolated, "bootstrap": bootstrap, "environ": dict(os.environ),
    "cwd": os.getcwd(), "children": children, "stdin": stdin, "version": list(sys.version_info[:2])}))
"""
NONCE = "nonce-of-a-machine"
BOOTSTRAP = Bootstrap("mch-1", nonce=NONCE, native_id="i-1")
SHELLS = [
    shell
    for shell in ("/bin/sh", "dash", "bash --posix", "busybox sh", "zsh --emulate sh")
    if shutil.which(shell.split()[0])
]
PYENV = Path.home() / ".pyenv/versions"


@dataclass
class Machine:
    """A machine on which the script runs: a home of its own, and what the agent noted there."""

    home: Path
    agent: AgentFile
    shell: str = "/bin/sh"
    path: str = os.environ["PATH"]
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, bootstrap: Bootstrap = BOOTSTRAP, **options: Any) -> subprocess.CompletedProcess[str]:
        """Feed the script to a shell on its standard input, as ssh does."""
        given = {"python": sys.executable, "download_seconds": 0.0, **options}
        script = fill_script(script_template(self.agent, "~/machine", **given), bootstrap, {})
        return self.run_script(script)

    def run_script(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.shell.split(), "-s"],
            input=script,
            capture_output=True,
            text=True,
            cwd=self.home,
            env={"PATH": self.path, "HOME": str(self.home), **self.variables},
            timeout=60,
            check=False,
        )

    @property
    def work(self) -> Path:
        return self.home / "machine"

    @property
    def cached(self) -> Path:
        return self.home / ".cache/crucible/agents" / self.agent.name


def started(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return what the agent noted when it was started."""
    assert (done.returncode, done.stderr) == (0, "")
    noted: dict[str, Any] = json.loads(done.stdout)
    return noted


def failed(done: subprocess.CompletedProcess[str], failure: BootFailure) -> str:
    """Return the one line that a failed script wrote."""
    assert (done.returncode, done.stdout) == (failure, "")
    assert done.stderr.startswith("crucible: ")
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture
def agent(tmp_path: Path) -> AgentFile:
    sha256 = hashlib.sha256(AGENT.encode()).hexdigest()
    file = AgentFile(tmp_path / f"agent-{sha256}.pyz", sha256)
    file.path.write_text(AGENT)
    return file


@pytest.fixture
def machine(tmp_path: Path, agent: AgentFile) -> Machine:
    home = tmp_path / "home"
    home.mkdir()
    return Machine(home, agent)


class TestStart:
    @pytest.mark.parametrize("shell", SHELLS)
    def test_the_script_becomes_the_host(self, machine: Machine, shell: str) -> None:
        machine.shell = shell
        noted = started(machine.run(paths=[str(machine.agent.path)]))
        path = machine.work / "bootstrap.json"
        assert noted["argv"] == [str(machine.cached), "host", "--bootstrap", str(path)]
        assert (noted["flags"], noted["cwd"], noted["stdin"]) == (1, str(machine.work), "/dev/null")
        assert noted["bootstrap"] == {
            **BOOTSTRAP.to_dict(),
            "work": str(machine.work),
            "envs": str(machine.work / "envs"),
        }
        for file in (path, machine.cached):  # not executable: the folders may be on a file system with noexec
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for folder in (machine.work, machine.cached.parent):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    def test_the_nonce_is_on_no_command_line_and_in_no_variable(self, machine: Machine) -> None:
        noted = started(machine.run(paths=[str(machine.agent.path)]))
        assert NONCE not in json.dumps([noted["argv"], noted["environ"]])

    def test_the_template_has_no_secret_and_the_filled_script_changes_only_that(self, agent: AgentFile) -> None:
        template = script_template(agent, "~/machine")
        filled = fill_script(template, BOOTSTRAP, {"A": "1"})
        assert NONCE not in template
        assert (
            filled.replace(json.dumps(BOOTSTRAP.to_dict()), "{bootstrap}").replace("export A=1", "# {variables}")
            == template
        )

    def test_the_template_names_its_agent_file(self, agent: AgentFile) -> None:
        assert find_agent_sha256(json.dumps({"user_data": script_template(agent, "~/m")})) == agent.sha256
        assert find_agent_sha256(json.dumps({"machine_dir": "machines/mch-1"})) is None

    def test_variables_are_exported_whatever_they_hold(self, machine: Machine) -> None:
        variables = {"A": 'it\'s $HOME `x` "y"\n{bootstrap}\n', "B_2": "# {variables}", "not-a-name": "x", "é": "x"}
        script = script_template(machine.agent, "~/machine", python=sys.executable, paths=[str(machine.agent.path)])
        environ = started(machine.run_script(fill_script(script, BOOTSTRAP, variables)))["environ"]
        assert (environ["A"], environ["B_2"]) == (variables["A"], variables["B_2"])
        assert not {"not-a-name", "é"} & environ.keys()

    def test_what_a_bootstrap_holds_cannot_end_the_here_document(self, machine: Machine) -> None:
        store = {"agent_file": str(machine.agent.path), "text": "\nEND_OF_BOOTSTRAP\n$(touch bad) 'é' # {variables}"}
        noted = started(machine.run(replace(BOOTSTRAP, store=store)))
        assert noted["bootstrap"]["store"] == store
        assert not list(machine.home.rglob("bad"))

    @pytest.mark.parametrize("shell", SHELLS)
    def test_a_long_bootstrap_leaves_no_child_of_the_shell(self, machine: Machine, shell: str) -> None:
        machine.shell = shell
        store = {"agent_file": str(machine.agent.path), "urls": {str(n): "x" * 1000 for n in range(200)}}
        noted = started(machine.run(replace(BOOTSTRAP, store=store)))
        assert noted["bootstrap"]["store"] == store
        assert noted["children"] is None

    def test_folders_with_odd_names_are_fine(self, machine: Machine) -> None:
        folder = '~/it\'s a "$HOME" `x`'
        script = script_template(
            machine.agent, folder, cache=f"{folder}/cache", python=sys.executable, paths=[str(machine.agent.path)]
        )
        noted = started(machine.run_script(fill_script(script, BOOTSTRAP, {})))
        assert noted["cwd"] == str(machine.home / folder[2:])

    def test_facts_are_what_the_machine_knows(self, machine: Machine) -> None:
        machine.variables = {"INSTANCE": "i-7 'x'"}
        facts = {"native_id": "$INSTANCE", "interruption_url": "$(echo http://127.0.0.1)/notice"}
        told = started(machine.run(paths=[str(machine.agent.path)], facts=facts))["bootstrap"]
        assert (told["native_id"], told["interruption_url"]) == ("i-7 'x'", "http://127.0.0.1/notice")

    def test_environments_go_where_the_bootstrap_says(self, machine: Machine) -> None:
        bootstrap = replace(BOOTSTRAP, envs=Path("~/shared/envs"))
        noted = started(machine.run(bootstrap, paths=[str(machine.agent.path)]))
        assert noted["bootstrap"]["envs"] == str(machine.home / "shared/envs")

    def test_a_login_shell_that_prints_does_no_harm(self, machine: Machine) -> None:
        (machine.home / ".profile").write_text("echo Welcome; echo hello >&2\n")
        script = fill_script(
            script_template(
                machine.agent, "~/machine", python=sys.executable, paths=[str(machine.agent.path)], detach=True
            ),
            BOOTSTRAP,
            {},
        )
        done = subprocess.run(
            ["bash", "--login", "-c", "exec sh -s"],
            input=script,
            capture_output=True,
            text=True,
            env={"PATH": machine.path, "HOME": str(machine.home)},
            timeout=60,
            check=True,
        )
        assert done.stdout.splitlines()[0] == "Welcome"
        assert done.stdout.splitlines()[-1].startswith("crucible-host ")

    def test_a_detached_host_outlives_the_script(self, tmp_path: Path, machine: Machine) -> None:
        text = "import os, signal, sys\nprint('here', os.getsid(0) == os.getpid(), flush=True)\nsignal.pause()\n"
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        machine.agent = AgentFile(tmp_path / "another", sha256)
        machine.agent.path.write_text(text)
        done = machine.run(paths=[str(machine.agent.path)], detach=True)
        assert (done.returncode, done.stderr) == (0, "")
        word, pid = done.stdout.split()
        host = psutil.Process(int(pid))
        try:
            assert word == "crucible-host"
            until = time.monotonic() + 30
            while (machine.work / "host.log").read_text() != "here True\n":
                assert time.monotonic() < until
                time.sleep(0.01)
            assert str(machine.cached) in host.cmdline()
        finally:
            host.kill()


OFF = 'echo "off $ended" >>off'
"""What a machine does when its agent has ended."""


class TestThen:
    def off(self, machine: Machine) -> str:
        return (machine.home / "off").read_text()

    @pytest.mark.parametrize("shell", SHELLS)
    @pytest.mark.parametrize("code", [0, 3])
    def test_the_command_runs_after_the_agent_whatever_its_code(self, machine: Machine, shell: str, code: int) -> None:
        machine.shell = shell
        machine.agent = replace_agent(machine.agent, f"{AGENT}assert not os.path.exists('../off')\nsys.exit({code})\n")
        done = machine.run(paths=[str(machine.agent.path)], then=OFF)
        assert (done.returncode, done.stderr) == (code, "")
        assert json.loads(done.stdout)["bootstrap"]["machine"] == "mch-1"
        assert self.off(machine) == f"off {code}\n"

    @pytest.mark.parametrize("shell", SHELLS)
    def test_it_runs_after_an_agent_that_was_killed(self, machine: Machine, shell: str) -> None:
        machine.shell = shell
        machine.agent = replace_agent(machine.agent, "import os\nos.kill(os.getpid(), 9)\n")
        assert machine.run(paths=[str(machine.agent.path)], then=OFF).returncode == 128 + 9
        assert self.off(machine) == "off 137\n"

    def test_it_runs_if_the_agent_cannot_be_downloaded(self, machine: Machine) -> None:
        failed(machine.run(then=OFF), BootFailure.NO_DOWNLOAD)
        assert self.off(machine) == f"off {BootFailure.NO_DOWNLOAD.value}\n"

    def test_it_runs_if_there_is_no_python(self, machine: Machine) -> None:
        machine.path, machine.shell = str(machine.home), shutil.which("sh") or ""
        failed(machine.run(python="", then=OFF), BootFailure.NO_PYTHON)
        assert self.off(machine) == f"off {BootFailure.NO_PYTHON.value}\n"

    def test_it_runs_if_python_is_too_old(self, tmp_path: Path, machine: Machine) -> None:
        old = tmp_path / "bin" / "python3"
        old.parent.mkdir()
        old.write_text("#!/bin/sh\necho Python 3.6; exit 1\n")
        old.chmod(0o755)
        machine.path, machine.shell = str(old.parent), shutil.which("sh") or ""
        failed(machine.run(python="", then=OFF), BootFailure.PYTHON_TOO_OLD)
        assert self.off(machine) == f"off {BootFailure.PYTHON_TOO_OLD.value}\n"

    def test_without_a_command_the_script_becomes_the_host(self, machine: Machine) -> None:
        machine.agent = replace_agent(machine.agent, "import os\nprint(os.getpid())\n")
        script = script_template(machine.agent, "~/machine", python=sys.executable, paths=[str(machine.agent.path)])
        done = subprocess.Popen(
            ["/bin/sh", "-s"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": machine.path, "HOME": str(machine.home)},
        )
        out, _ = done.communicate(fill_script(script, BOOTSTRAP, {}), timeout=60)
        assert int(out) == done.pid

    def test_a_detached_host_has_not_ended_with_the_script(self, machine: Machine) -> None:
        with pytest.raises(ValueError, match="detached"):
            machine.run(detach=True, then="poweroff")


def replace_agent(agent: AgentFile, text: str) -> AgentFile:
    """Return another agent file, with this program."""
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    other = AgentFile(agent.path.with_name(f"agent-{sha256}.pyz"), sha256)
    other.path.write_text(text)
    return other


class TestPython:
    def make(self, folder: Path, name: str, text: str) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
        return folder

    def test_without_any_the_script_says_so(self, machine: Machine) -> None:
        machine.path = str(machine.home)
        machine.shell = shutil.which("sh") or ""
        said = failed(machine.run(python=""), BootFailure.NO_PYTHON)
        assert "there is no python3 on PATH; install Python 3.9 or newer" in said

    def test_one_that_does_not_run_is_named(self, tmp_path: Path, machine: Machine) -> None:
        machine.path = str(self.make(tmp_path / "bin", "python3", "echo broken; echo broken >&2; exit 127"))
        machine.shell = shutil.which("sh") or ""
        said = failed(machine.run(python=""), BootFailure.PYTHON_TOO_OLD)
        assert f"found: {tmp_path}/bin/python3" in said

    def test_the_first_that_works_is_used(self, tmp_path: Path, machine: Machine) -> None:
        self.make(tmp_path / "bin", "python3", "exit 1")
        folder = self.make(tmp_path / "bin", "python3.11", f'exec {sys.executable} "$@"')
        machine.path, machine.shell = str(folder), shutil.which("sh") or ""
        assert started(machine.run(python="/no/such/python", paths=[str(machine.agent.path)]))["argv"]

    @pytest.mark.parametrize("version", ["2.7", "3.6", "3.8"])
    def test_an_old_one_is_refused_with_its_version(self, tmp_path: Path, machine: Machine, version: str) -> None:
        python = find_python(version)
        machine.path = str(self.make(tmp_path / "bin", "python3", f'exec {python} "$@"'))
        machine.shell = shutil.which("sh") or ""
        said = failed(machine.run(python=""), BootFailure.PYTHON_TOO_OLD)
        assert "Python 3.9 or newer" in said
        assert version == "2.7" or f"(Python {version})" in said

    @pytest.mark.parametrize("version", ["3.9", "3.13"])
    def test_the_oldest_and_the_newest_start_the_agent(self, machine: Machine, version: str) -> None:
        python = find_python(version)
        noted = started(machine.run(python=str(python), paths=[str(machine.agent.path)]))
        assert noted["version"] == [int(part) for part in version.split(".")]


def find_python(version: str) -> Path:
    found = sorted(PYENV.glob(f"{version}.*/bin/python"))
    if not found:
        pytest.skip(f"Python {version} is not installed here")
    return found[-1]


class TestSources:
    @pytest.mark.parametrize("base", ["", "/below/"])
    def test_the_listener_over_http(self, machine: Machine, base: str) -> None:
        with listening({base.rstrip("/") + agent_route(machine.agent): AGENT.encode()}) as server:
            started(machine.run(replace(BOOTSTRAP, agents_url=server.url + base)))
            assert server.asked == [(base.rstrip("/") + agent_route(machine.agent), server.url[7:])]
        assert machine.cached.read_text() == AGENT

    def test_the_listener_over_tls(self, tmp_path: Path, machine: Machine) -> None:
        certificate, key = make_certificate(tmp_path)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        bootstrap = replace(BOOTSTRAP, agents_url=f"https://localhost:{server.server_port}")
        with serving(server, {agent_route(machine.agent): AGENT.encode()}):
            said = failed(machine.run(bootstrap), BootFailure.NO_DOWNLOAD)
            assert "certificate verify failed" in said
            machine.variables = {"SSL_CERT_FILE": str(certificate)}
            started(machine.run(bootstrap))

    def test_the_listener_at_a_unix_socket(self, tmp_path: Path, machine: Machine) -> None:
        path = tmp_path / "a socket%"
        bootstrap = replace(BOOTSTRAP, agents_url=unix_url(path))
        with serving(UnixServer(str(path), Listener), {agent_route(machine.agent): AGENT.encode()}) as server:
            started(machine.run(bootstrap))
            assert server.asked == [(agent_route(machine.agent), "localhost")]

    def test_the_file_with_the_address_wins_and_a_missing_one_does_not(self, tmp_path: Path, machine: Machine) -> None:
        file = tmp_path / "agents.address"
        with listening({agent_route(machine.agent): AGENT.encode()}) as server:
            file.write_text(f"{server.url}\n")
            started(machine.run(replace(BOOTSTRAP, agents_url="http://127.0.0.1:1", agents_url_file=str(file))))
            machine.cached.unlink()
            file.unlink()
            started(machine.run(replace(BOOTSTRAP, agents_url=server.url, agents_url_file=str(file))))

    def test_a_signed_url_of_the_store(self, machine: Machine) -> None:
        with listening({"/bucket/agent?X-Signature=a%2Fb": AGENT.encode()}) as server:
            store = {"agent_file": f"{server.url}/bucket/agent?X-Signature=a%2Fb", "urls": {}}
            started(machine.run(replace(BOOTSTRAP, agents_url="http://127.0.0.1:1", store=store)))

    def test_a_signed_url_is_a_secret_and_not_in_an_error(self, machine: Machine) -> None:
        with listening({}) as server:
            store = {"agent_file": f"{server.url}/bucket/agent?X-Signature=hunter2"}
            said = failed(machine.run(replace(BOOTSTRAP, store=store)), BootFailure.NO_DOWNLOAD)
        assert server.url in said
        assert "hunter2" not in said

    def test_a_folder_that_both_sides_see(self, machine: Machine) -> None:
        started(machine.run(replace(BOOTSTRAP, store={"agent_file": str(machine.agent.path), "folder": "/x"})))

    def test_a_machine_that_talks_through_the_store_never_calls_the_server(self, machine: Machine) -> None:
        with listening({agent_route(machine.agent): AGENT.encode()}) as server:
            bootstrap = replace(BOOTSTRAP, agents_url=server.url, store={"agent_file": "/no/such/file"})
            failed(machine.run(bootstrap), BootFailure.NO_DOWNLOAD)
            assert server.asked == []

    def test_the_file_in_the_cache_is_used_again_unless_it_is_damaged(self, machine: Machine) -> None:
        with listening({agent_route(machine.agent): AGENT.encode()}) as server:
            bootstrap = replace(BOOTSTRAP, agents_url=server.url)
            started(machine.run(bootstrap))
            started(machine.run(bootstrap))
            assert len(server.asked) == 1
            machine.cached.write_text("print('damaged')")
            started(machine.run(bootstrap))
            assert len(server.asked) == 2

    def test_it_is_tried_again_while_the_server_is_down(self, machine: Machine) -> None:
        with listening({agent_route(machine.agent): AGENT.encode()}) as server:
            server.failures = [503, 502]
            started(machine.run(replace(BOOTSTRAP, agents_url=server.url), download_seconds=30.0))
            assert len(server.asked) == 3


class TestFailures:
    @pytest.mark.parametrize(
        "url", ["", "http://127.0.0.1:1", "unix:/no/such/socket", "ftp://example/", "http://[", "x"]
    )
    def test_no_server(self, machine: Machine, url: str) -> None:
        said = failed(machine.run(replace(BOOTSTRAP, agents_url=url or None)), BootFailure.NO_DOWNLOAD)
        assert (url or "names no source") in said

    def test_a_server_without_the_file(self, machine: Machine) -> None:
        with listening({}) as server:
            said = failed(machine.run(replace(BOOTSTRAP, agents_url=server.url)), BootFailure.NO_DOWNLOAD)
        assert "it answered 404" in said

    def test_a_download_that_ends_early(self, machine: Machine) -> None:
        with listening({agent_route(machine.agent): AGENT.encode()}, missing=1) as server:
            said = failed(machine.run(replace(BOOTSTRAP, agents_url=server.url)), BootFailure.NO_DOWNLOAD)
        assert server.url in said

    @pytest.mark.parametrize("shell", SHELLS)
    def test_another_hash_is_refused_and_nothing_is_kept(self, machine: Machine, shell: str) -> None:
        machine.shell = shell
        with listening({agent_route(machine.agent): b"print('hostile')"}) as server:
            said = failed(machine.run(replace(BOOTSTRAP, agents_url=server.url)), BootFailure.WRONG_HASH)
        assert machine.agent.sha256 in said
        assert list(machine.cached.parent.iterdir()) == []

    def test_another_hash_on_the_machine_does_not_stop_the_download(self, tmp_path: Path, machine: Machine) -> None:
        (tmp_path / "old").write_text("print('old')")
        with listening({agent_route(machine.agent): AGENT.encode()}) as server:
            started(machine.run(replace(BOOTSTRAP, agents_url=server.url), paths=[str(tmp_path / "old"), "~/none"]))

    def test_no_space(self, machine: Machine) -> None:
        machine.shell = "prlimit --fsize=64 sh" if shutil.which("prlimit") else pytest.skip("needs prlimit")
        said = failed(machine.run(paths=[str(machine.agent.path)]), BootFailure.NO_SPACE)
        assert str(machine.cached) in said
        assert list(machine.cached.parent.iterdir()) == []

    def test_a_folder_that_is_a_link(self, tmp_path: Path, machine: Machine) -> None:
        (tmp_path / "elsewhere").mkdir()
        machine.work.symlink_to(tmp_path / "elsewhere")
        assert "is a link" in failed(machine.run(), BootFailure.BAD_FOLDER)
        assert list((tmp_path / "elsewhere").iterdir()) == []

    def test_a_file_in_the_way(self, machine: Machine) -> None:
        machine.work.write_text("")
        assert str(machine.work) in failed(machine.run(), BootFailure.BAD_FOLDER)

    def test_a_fact_that_the_machine_does_not_know(self, machine: Machine) -> None:
        said = failed(machine.run(facts={"native_id": "$NO_SUCH_VARIABLE"}), BootFailure.BAD_BOOTSTRAP)
        assert "does not know its native_id" in said

    def test_a_template_that_was_not_filled_in(self, machine: Machine) -> None:
        done = machine.run_script(script_template(machine.agent, "~/machine", python=sys.executable))
        assert "was the script filled in?" in failed(done, BootFailure.BAD_BOOTSTRAP)
        assert not machine.work.exists()


def test_the_program_on_the_machine_has_the_same_codes() -> None:
    from crucible.backends import start_agent

    for failure in BootFailure:
        if failure > BootFailure.PYTHON_TOO_OLD:
            assert getattr(start_agent, failure.name) == failure


def test_the_program_needs_no_quoting() -> None:
    """User data of machines is limited to 16 KiB at some providers."""
    template = script_template(AgentFile(Path("a"), "0" * 64), "~/machine")
    assert "'\"'\"'" not in template
    assert len(template) < 10 * 1024
