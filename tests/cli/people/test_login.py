"""`logout` from servers that do not answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from crucible.client.server.logins import Login, Logins, load, save

pytestmark = pytest.mark.enable_socket

GONE = "http://127.0.0.1:9"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A login to a server that is gone."""
    path = tmp_path / "home" / "logins.json"
    save(path, Logins({GONE: Login("ada", "crt_secret")}, GONE))
    return path


def test_a_server_that_is_gone_is_forgotten_and_what_is_left_there_is_said(cli: Cli, kept: Path) -> None:
    done = cli("logout")
    assert done.code == 0
    assert f"Logged out of {GONE}." in done.err
    assert "on the server could not be ended" in done.err
    assert load(kept) == Logins({})


def test_until_then_commands_say_that_a_login_names_it(cli: Cli, kept: Path) -> None:
    done = cli("jobs", "--json")
    assert done.code == 9
    assert "crucible logout" in json.loads(done.err)["error"]["fix"]


def test_who_is_not_logged_in_is_told_where_he_is(cli: Cli, kept: Path) -> None:
    done = cli("logout", "http://127.0.0.1:8")
    assert done.code == 2
    assert GONE in done.err
