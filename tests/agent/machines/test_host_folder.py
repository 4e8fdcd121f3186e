from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crucible.agent.machines.host_folder import HostFolder
from crucible.wire.http.client import unix_url
from crucible.wire.machines.folder import MachineFolder

MiB = 1024**2


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def state(home: Path) -> HostFolder:
    made = HostFolder(home / ".crucible/hosts/node-1/dep-1")
    made.make()
    return made


def listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def fill(folder: Path, age: int) -> None:
    folder.mkdir(parents=True)
    (folder / "data").write_bytes(bytes(MiB))
    os.utime(folder, (10**9 - age, 10**9 - age))


class TestTunnel:
    def test_its_folder_is_private(self, state: HostFolder) -> None:
        folder = state.make_tunnel_folder()
        assert folder == state.path / "tunnel"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert state.make_tunnel_folder() == folder

    def test_a_long_home_gets_a_short_folder(self, home: Path) -> None:
        state = HostFolder(home / ("long" * 20) / "dep-1")
        folder = state.make_tunnel_folder()
        assert len(str(folder)) < 60
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        state.prune(0)
        assert not folder.exists()

    def test_a_folder_that_others_can_open_is_refused(self, state: HostFolder) -> None:
        (state.path / "tunnel").mkdir()
        (state.path / "tunnel").chmod(0o777)
        with pytest.raises(PermissionError, match="open to other users"):
            state.make_tunnel_folder()

    def test_the_address_is_the_newest_and_older_sockets_are_removed(self, state: HostFolder) -> None:
        folder = state.make_tunnel_folder()
        assert not state.tunnel_answers()
        with listen(folder / "old"), listen(folder / "new"):
            state.write_address(unix_url(folder / "new"))
            assert state.tunnel_answers()
            assert [path.name for path in folder.iterdir()] == ["new"]
        assert not state.tunnel_answers()

    @pytest.mark.enable_socket
    @pytest.mark.parametrize("text", ["", "nonsense", "http://127.0.0.1:1", "unix:/no/such/socket", "http://[", "\0"])
    def test_no_answer_where_nobody_listens(self, state: HostFolder, text: str) -> None:
        state.address_file.write_text(text)
        assert not state.tunnel_answers()


class TestRemoving:
    def test_tidying_leaves_nothing_where_nothing_is_cached(self, state: HostFolder, home: Path) -> None:
        with listen(state.make_tunnel_folder() / "s"):
            state.write_address(unix_url(state.path / "tunnel/s"))
        state.machines.mkdir()
        state.prune(0)
        assert list(home.iterdir()) == []

    def test_caches_are_kept_by_their_last_use_up_to_the_limit(self, state: HostFolder) -> None:
        for age, name in enumerate(("envs/new", "cache/old", "envs/older", "agent/oldest")):
            fill(state.path / name, age)
        fill(state.path / "pythons" / "cpython", 0)
        state.prune(3 * MiB + MiB // 2)
        assert sorted(path.name for path in state.path.glob("*/*")) == ["cpython", "new", "old"]

    def test_pythons_go_after_everything_that_uses_them(self, state: HostFolder, home: Path) -> None:
        fill(state.path / "pythons" / "cpython", 0)
        fill(state.path / "envs" / "new", 0)
        state.prune(MiB // 2)
        assert list(home.iterdir()) == []

    def test_what_another_deployment_has_stays(self, state: HostFolder, home: Path) -> None:
        other = HostFolder(home / ".crucible/hosts/node-1/dep-2")
        other.make()
        fill(other.path / "cache" / "x", 0)
        assert state.remove() >= 0
        assert not state.path.exists()
        assert (other.path / "cache" / "x" / "data").exists()

    def test_machines_are_listed(self, state: HostFolder) -> None:
        MachineFolder(state.machines / "mch-1").make()
        assert [folder.path.name for folder in state.list_machines()] == ["mch-1"]


class TestVariables:
    def test_caches_are_in_the_folder_unless_the_user_chose_another(self, state: HostFolder) -> None:
        variables = state.add_variables({"PATH": "/bin", "UV_CACHE_DIR": "/fast/uv"}, tmp_noexec=False)
        assert variables["UV_CACHE_DIR"] == "/fast/uv"
        assert variables["PIP_CACHE_DIR"] == str(state.path / "cache" / "pip")
        assert "TMPDIR" not in variables

    def test_a_temporary_folder_replaces_one_where_nothing_can_be_executed(self, state: HostFolder) -> None:
        assert state.add_variables({}, tmp_noexec=True)["TMPDIR"] == str(state.path / "tmp")
        assert (state.path / "tmp").is_dir()
        assert state.add_variables({"TMPDIR": "/scratch"}, tmp_noexec=True)["TMPDIR"] == "/scratch"
