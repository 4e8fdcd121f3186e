"""`python -m crucible.app db`: the database of a state folder, without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crucible import app
from crucible.control.db import open_database
from crucible.server.state_folder import StateFolder, open_state_folder


@pytest.fixture
async def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    monkeypatch.setenv("CRUCIBLE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    home = open_state_folder(tmp_path / "home")
    await open_database(home.database).close()
    return home


Said = tuple[int, dict[str, Any]]


@pytest.fixture
def db(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> Said:
        code = app.main(["db", *arguments])
        said = capsys.readouterr()
        return code, json.loads((said.out or said.err).splitlines()[-1])

    return run


def test_back_up_restore_confirm(home: StateFolder, db: Any, tmp_path: Path) -> None:
    code, made = db("backup", str(tmp_path / "b.zip"))
    assert (code, made["store"]) == (0, str(home.store))
    assert made["bytes"] == (tmp_path / "b.zip").stat().st_size
    code, done = db("restore", str(tmp_path / "b.zip"))
    assert code == 0
    assert Path(done["kept"]).exists()
    assert "crucible db confirm" in done["fix"]
    assert db("confirm")[1]["confirmed"] is True
    assert db("confirm")[1]["confirmed"] is False


def test_a_folder_that_is_said_is_the_one(home: StateFolder, db: Any, tmp_path: Path) -> None:
    assert db("backup", str(tmp_path / "b.zip"), "--home", str(tmp_path / "other"))[0] == 2
    assert db("backup", str(tmp_path / "b.zip"), "--home", str(home.path))[0] == 0


def test_nothing_is_restored_or_confirmed_under_a_running_server(home: StateFolder, db: Any, tmp_path: Path) -> None:
    assert db("backup", str(tmp_path / "b.zip"))[0] == 0
    with home.lock():
        for arguments in (("restore", str(tmp_path / "b.zip")), ("confirm",)):
            code, said = db(*arguments)
            assert (code, said["error"]["code"]) == (5, "already_running")
        assert db("backup", str(tmp_path / "c.zip"))[0] == 0, "a backup disturbs nobody"


def test_no_key_is_made_under_a_running_server(home: StateFolder, db: Any, tmp_path: Path) -> None:
    with home.lock():
        assert db("restore", str(tmp_path / "b.zip"))[0] == 5
    assert not (home.path / "key").exists()


def test_a_backup_of_another_folder_needs_force(home: StateFolder, db: Any, tmp_path: Path) -> None:
    assert db("backup", str(tmp_path / "b.zip"))[0] == 0
    (home.path / "key").unlink()
    code, said = db("restore", str(tmp_path / "b.zip"))
    assert (code, said["error"]["code"]) == (5, "foreign_backup")
    assert db("restore", str(tmp_path / "b.zip"), "--force")[0] == 0


def test_an_older_backup_is_overwritten_when_asked(home: StateFolder, db: Any, tmp_path: Path) -> None:
    target = str(tmp_path / "b.zip")
    assert [db("backup", target)[0], db("backup", target)[0], db("backup", target, "--overwrite")[0]] == [0, 5, 0]


@pytest.mark.parametrize("arguments", [(), ("frobnicate",), ("backup",), ("restore",)])
def test_a_wrong_command_line_is_bad_input(home: StateFolder, db: Any, arguments: tuple[str, ...]) -> None:
    code, said = db(*arguments)
    assert (code, said["error"]["code"]) == (2, "bad_input")
