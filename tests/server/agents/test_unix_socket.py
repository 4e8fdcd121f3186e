"""The socket for agents on this computer: where it lies, and who may have made what lies there."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crucible.core.errors import RefusedByPolicy, Trouble
from crucible.server.agents.unix_socket import bind_agents_socket, short_folder
from crucible.wire.files.private import why_not_private


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder open to everybody, as the system's; tmp_path is too long to hold a socket's path."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o1777)
        monkeypatch.setattr("tempfile.tempdir", name)
        yield folder


def private(folder: Path) -> Path:
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    return folder


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(str(path))
        except OSError:
            return False
    return True


def test_it_lies_in_the_state_folder_while_a_server_runs(tmp_path: Path) -> None:
    home = private(tmp_path / "home")
    with bind_agents_socket(home) as bound:
        assert bound.getsockname() == str(home / "agents.sock")
        assert answers(home / "agents.sock")
    assert not (home / "agents.sock").exists()


def test_the_socket_of_a_dead_server_is_replaced(tmp_path: Path) -> None:
    home = private(tmp_path / "home")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home / "agents.sock"))
    assert not answers(home / "agents.sock")
    with bind_agents_socket(home):
        assert answers(home / "agents.sock")


def test_the_socket_of_a_successor_stays(tmp_path: Path, temporary: Path) -> None:
    """A server that has lost its state folder ends while another runs on a new one at its path."""
    for home in (tmp_path / "home", tmp_path / ("long" * 30)):
        with contextlib.ExitStack() as successor:
            with bind_agents_socket(private(home)) as first:
                shutil.rmtree(home)
                second = successor.enter_context(bind_agents_socket(private(home)))
                path = Path(second.getsockname())
                assert first.getsockname() == str(path)
            assert answers(path)
        assert not path.exists()


def test_of_a_long_path_it_lies_in_a_short_private_folder(tmp_path: Path, temporary: Path) -> None:
    homes = [private(tmp_path / ("long" * 30) / name) for name in ("a", "b")]
    with bind_agents_socket(homes[0]) as one, bind_agents_socket(homes[1]) as other:
        paths = [Path(bound.getsockname()) for bound in (one, other)]
        assert all(answers(path) and path.parent.parent == temporary for path in paths)
        assert not any(why_not_private(path.parent) for path in paths)
    assert paths[0].parent != paths[1].parent
    assert list(temporary.iterdir()) == []
    with bind_agents_socket(homes[0]) as again:
        assert again.getsockname() == str(paths[0])


def test_of_a_folder_that_cannot_be_private_it_lies_elsewhere(tmp_path: Path, temporary: Path) -> None:
    home = private(tmp_path / "home")
    home.chmod(0o755)
    with bind_agents_socket(home) as bound:
        assert Path(bound.getsockname()).parent.parent == temporary


def test_a_short_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedByPolicy, match="another user") as caught:
        short_folder(tmp_path / "home", tmp_path, os.geteuid() + 1)
    assert "belongs to another user" in caught.value.why
    assert "CRUCIBLE_HOME" in caught.value.fix


def test_a_short_folder_that_others_can_open_is_refused(tmp_path: Path) -> None:
    folder = short_folder(tmp_path / "home", tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o770)
    with pytest.raises(RefusedByPolicy):
        short_folder(tmp_path / "home", tmp_path)


def test_a_link_is_refused(tmp_path: Path) -> None:
    folder = short_folder(tmp_path / "home", tmp_path)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedByPolicy) as caught:
        short_folder(tmp_path / "home", tmp_path)
    assert "is a link" in caught.value.why


def test_where_no_path_is_short_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = private(tmp_path / ("long" * 30))
    monkeypatch.setattr("tempfile.tempdir", str(home))
    with pytest.raises(Trouble) as caught, bind_agents_socket(home):
        pass
    assert "shorter path" in caught.value.fix
