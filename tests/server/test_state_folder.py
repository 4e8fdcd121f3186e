"""The state folder: closed to others, one server at a time, secrets made once."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from crucible.core.errors import CrucibleError, Trouble
from crucible.server.folder_lock import AlreadyRunning
from crucible.server.state_folder import Discovery, Ports, StateFolder, open_state_folder

FOUND = Discovery("http://127.0.0.1:1", "http://127.0.0.1:2", 7, "123", "1.0", "n", "dep-1", "1:2")


@pytest.fixture
def home(tmp_path: Path) -> StateFolder:
    return open_state_folder(tmp_path / "a" / "state")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_is_closed_to_others(home: StateFolder) -> None:
    assert mode(home.path) == 0o700


def test_an_open_folder_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert mode(open_state_folder(tmp_path).path) == 0o700


def test_a_file_in_its_place_is_told_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(Trouble) as caught:
        open_state_folder(tmp_path / "state")
    assert "CRUCIBLE_HOME" in caught.value.fix


def test_one_server_at_a_time(home: StateFolder) -> None:
    with home.lock():
        with pytest.raises(AlreadyRunning) as caught, home.lock():
            pass
        assert caught.value.exit_code == 5
    with home.lock():
        pass


def test_errors_under_the_lock_are_not_changed(home: StateFolder) -> None:
    with pytest.raises(ConnectionResetError), home.lock():
        raise ConnectionResetError
    with pytest.raises(CrucibleError, match="mine"), home.lock():
        raise CrucibleError("mine")


def test_secrets_are_made_once_and_private(home: StateFolder) -> None:
    token, key = home.load_token(), home.load_key()
    assert token != key
    assert (home.load_token(), home.load_key()) == (token, key)
    assert len(key.reveal()) == 64
    assert (mode(home.path / "token"), mode(home.path / "key")) == (0o600, 0o600)


def test_a_secret_open_to_others_is_closed(home: StateFolder) -> None:
    home.load_key()
    (home.path / "key").chmod(0o644)
    home.load_key()
    assert mode(home.path / "key") == 0o600


def test_a_cut_off_secret_is_not_used(home: StateFolder) -> None:
    (home.path / "key").write_text("abc")
    with pytest.raises(Trouble) as caught:
        home.load_key()
    assert "abc" not in str(caught.value)


def test_the_server_is_announced_and_withdrawn(home: StateFolder) -> None:
    home.write_discovery(FOUND)
    path = home.path / "server.json"
    assert json.loads(path.read_text())["nonce"] == "n"
    assert mode(path) == 0o600
    home.remove_discovery()
    home.remove_discovery()
    assert not path.exists()


def test_a_reader_never_sees_half_a_file(home: StateFolder) -> None:
    home.write_discovery(FOUND)
    with (home.path / "server.json").open() as reader:
        home.write_discovery(FOUND)
        assert json.load(reader)["pid"] == 7
    assert [path.name for path in home.path.iterdir()] == ["server.json"]


def test_ports_are_kept_for_the_next_run(home: StateFolder) -> None:
    assert home.read_ports() == Ports()
    home.write_ports(Ports(1, 2))
    assert home.read_ports() == Ports(1, 2)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"api": "x", "agents": 1}', '{"api": 1}'])
def test_broken_ports_are_no_ports(home: StateFolder, text: str) -> None:
    (home.path / "ports.json").write_text(text)
    assert home.read_ports() == Ports()


def test_the_key_of_several_servers_is_read_where_it_is_named(home: StateFolder, tmp_path: Path) -> None:
    shared = tmp_path / "shared-key"
    shared.write_text("5e" * 32 + "\n")
    assert home.load_key(shared).reveal() == "5e" * 32
    assert not (home.path / "key").exists()


@pytest.mark.parametrize("content", [None, "short", "\u00e9" * 64])
def test_a_named_key_that_is_none_is_refused_and_not_made(
    home: StateFolder, tmp_path: Path, content: str | None
) -> None:
    shared = tmp_path / "shared-key"
    if content is not None:
        shared.write_text(content)
    with pytest.raises(Trouble) as refused:
        home.load_key(shared)
    assert "key_file" in refused.value.fix
    assert shared.exists() == (content is not None)
