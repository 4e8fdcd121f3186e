"""`crucible backends connect`, `disconnect`, `show` and `check`."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from structlog.testing import capture_logs
from tests.cli.conftest import Cli
from tests.client.real_server import RealServer
from tests.control.moon import KEY, MoonBackend

from crucible.backends.base import Finding

pytestmark = pytest.mark.enable_socket


@pytest.fixture(autouse=True)
def server_log() -> Iterator[list[Any]]:
    """The log of the server, which runs in this process."""
    with capture_logs() as log:
        yield log


class Terminal(io.StringIO):
    """A user who answers questions. `asked` has each with whether the answer is hidden; confirmations are None."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
        super().__init__()
        self.answers = list(answers)
        self.asked: list[tuple[str, bool | None]] = []
        monkeypatch.setattr(sys, "stdin", self)
        monkeypatch.setattr(typer, "prompt", self._prompt)
        monkeypatch.setattr(typer, "confirm", self._confirm)

    def isatty(self) -> bool:
        return True

    def _prompt(self, text: str, *, hide_input: bool = False, err: bool = False) -> str:
        assert err, "standard output is for data"
        self.asked.append((text, hide_input))
        return self.answers.pop(0)

    def _confirm(self, text: str, *, err: bool = False) -> bool:
        self.asked.append((text, None))
        return self.answers.pop(0) == "y"


class PipedKey:
    """Standard input with a key, as from a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, content: bytes = f"{KEY}\n".encode()) -> None:
        self.buffer = io.BytesIO(content)
        monkeypatch.setattr(sys, "stdin", self)

    def isatty(self) -> bool:
        return False


def moon(real: RealServer) -> MoonBackend:
    found = real.harness.connected.get("moon")
    assert isinstance(found, MoonBackend)
    return found


def connected(real: RealServer) -> bool:
    return real.harness.connected.has("moon")


def test_on_a_terminal_it_asks_for_what_is_missing_checks_and_asks(
    cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch, server_log: list[Any]
) -> None:
    terminal = Terminal(monkeypatch, KEY, "y")
    ran = cli("backends", "connect", "moon", "--host", "user@box", "--host=other", "--set", "most=3")
    assert (ran.code, ran.out) == (0, "")
    assert terminal.asked == [("api_key", True), ("Connect moon?", None)]
    for line in (
        "api_key: Key of the account.",
        "✓ the region tranquility exists",
        "api_key: not set → ***",
        "hosts: not set → user@box, other",
        "offers this computer in here: $1.5/h",
        "jobs there: of all projects (--project NAME allows only that project)",
        "moon is connected. Try it: crucible plan TARGET --backend moon",
    ):
        assert line in ran.err
    assert KEY not in f"{ran.err} {server_log}"
    settings = moon(real).settings
    assert (settings.hosts, settings.most, settings.api_key.reveal()) == (("user@box", "other"), 3, KEY)


def test_who_says_no_changes_nothing(cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    Terminal(monkeypatch, KEY, "n")
    assert cli("backends", "connect", "moon").code == 1
    assert not connected(real)


def test_a_warning_is_shown_with_its_fix_and_refuses_nothing(
    cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    PipedKey(monkeypatch)
    cli("backends", "connect", "moon", "--yes", "--api-key", "-")
    moon(real).moon.warnings.append(Finding("the moon is far", why="It takes a second.", fix="Wait.", warning=True))
    ran = cli("backends", "check", "moon")
    assert ran.code == 0
    assert "! the moon is far\n  It takes a second.\n  Wait." in ran.err


def test_a_failed_check_says_what_to_do_and_changes_nothing(
    cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    Terminal(monkeypatch, "wrong-key")
    ran = cli("backends", "connect", "moon")
    assert ran.code == 1
    assert "✗ the key is valid\n  *** is refused\n  Get another key." in ran.err
    assert "Nothing was stored" in ran.err
    PipedKey(monkeypatch, b"wrong-key")
    ran = cli("backends", "connect", "moon", "--yes", "--api-key", "-")
    assert ran.code == 2
    assert "1 of 2 checks failed" in ran.err
    assert "wrong-key" not in ran.err
    assert not connected(real)


def test_without_a_terminal_it_says_what_is_missing(
    cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    PipedKey(monkeypatch)
    ran = cli("backends", "connect", "moon", "--yes")
    assert ran.code == 2
    assert "The backend 'moon' needs api_key." in ran.err
    assert "crucible backends connect moon --api-key -; or set CRUCIBLE_MOON_API_KEY" in ran.err
    ran = cli("backends", "connect", "moon", "--api-key", "-")
    assert ran.code == 2
    assert "Add --yes" in ran.err
    assert not connected(real)


def test_a_secret_comes_from_standard_input_and_never_from_an_argument(
    cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = cli("backends", "connect", "moon", "--yes", "--api-key", KEY)
    assert ran.code == 2
    assert "--api-key -" in ran.err
    assert KEY not in ran.err
    PipedKey(monkeypatch)
    ran = cli("backends", "connect", "moon", "--yes", "--api-key", "-", "--json")
    assert (ran.code, ran.json["connected"], ran.json["changes"][0]["after"]) == (0, True, "***")
    assert moon(real).settings.api_key.reveal() == KEY
    PipedKey(monkeypatch, b"")
    assert "Standard input is empty" in cli("backends", "connect", "moon", "--yes", "--api-key", "-").err


def test_a_second_time_it_shows_what_changes(cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("projects", "add", "alpha")
    Terminal(monkeypatch, KEY, "y")
    cli("backends", "connect", "moon", "--region", "nubium")
    terminal = Terminal(monkeypatch, "y")
    ran = cli("backends", "connect", "moon", "--set", "region=", "--project", "alpha")
    assert terminal.asked == [("Change the settings of moon?", None)]
    assert "region: nubium → not set" in ran.err
    assert "jobs there: of the projects alpha" in ran.err
    assert moon(real).settings.region == "tranquility"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("moon", "--hots", "x"), "Did you mean 'hosts'?"),
        (("moon", "--set", "hots=x"), "Did you mean"),
        (("moon", "--set", "host"), "Write --set FIELD=VALUE"),
        (("moon", "--host"), "--host needs a value"),
        (("mooon",), "Did you mean 'moon'?"),
        (("--host", "x"), "NAME is missing"),
        (("moon", "-x"), "There is no option -x"),
        (("moon", "--most", "many", "--yes"), "needs api_key"),
    ],
)
def test_what_is_wrong_is_named(cli: Cli, real: RealServer, arguments: tuple[str, ...], says: str) -> None:
    ran = cli("backends", "connect", *arguments)
    assert ran.code == 2
    assert says in ran.err
    assert not connected(real)


@pytest.mark.parametrize("value", ["-oProxyCommand=touch /tmp/x", "-y", "--yes", "-q", "--json"])
def test_a_value_that_looks_like_an_option_is_none(
    cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    PipedKey(monkeypatch)
    ran = cli("backends", "connect", "moon", "--api-key", "-", "--host", value)
    assert ran.code == 2, "it asks, because --yes was not given"
    assert "Add --yes" in ran.err
    PipedKey(monkeypatch)
    assert cli("backends", "connect", "moon", "-y", "--host", value, "--api-key", "-").code == 0
    assert moon(real).settings.hosts == (value,)


def test_check_connects_nothing(cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    PipedKey(monkeypatch)
    ran = cli("backends", "check", "moon", "--api-key", "-", "--json")
    assert (ran.code, ran.json["ok"], ran.json["connected"]) == (0, True, False)
    PipedKey(monkeypatch, b"wrong-key")
    ran = cli("backends", "check", "moon", "--api-key", "-")
    assert ran.code == 1
    assert "✗ the key is valid" in ran.err
    assert not connected(real)
    assert cli("backends", "check", "local").code == 0


def test_show_describes_every_setting(cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = cli("backends", "show", "moon")
    lines = ran.out.splitlines()
    assert lines[0] == "moon is not connected"
    assert lines[1].split() == ["OPTION", "VALUE", "FROM", "MEANING"]
    assert lines[2].split() == ["--api-key", "missing", "default", "Key", "of", "the", "account."]
    assert "api_key: set by --api-key, CRUCIBLE_MOON_API_KEY or MOON_KEY" in ran.err
    Terminal(monkeypatch, KEY, "y")
    cli("backends", "connect", "moon")
    shown = cli("backends", "show", "moon", "--json").json
    assert (shown["state"], shown["connected_by"]) == ("connected", "crucible backends connect")
    ran = cli("backends", "show", "moon")
    assert "moon is connected by crucible backends connect, last changed by owner" in ran.out
    assert KEY not in ran.out + ran.err


def test_disconnect_asks_and_cleans_up(cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    Terminal(monkeypatch, KEY, "y")
    cli("backends", "connect", "moon")
    Terminal(monkeypatch, "n")
    assert cli("backends", "disconnect", "moon").code == 1
    assert connected(real)
    ran = cli("backends", "disconnect", "moon", "--yes")
    assert (ran.code, connected(real)) == (0, False)
    assert "✓ removed the dust" in ran.err
    assert "moon is disconnected." in ran.err
    ran = cli("backends", "disconnect", "moon", "--yes")
    assert ran.code == 3
    assert "moon is not connected" in ran.err


def test_disconnect_with_machines_says_what_is_left(
    cli: Cli, real: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crucible.cli.compute.connections.WAIT_SECONDS", 0.0)
    Terminal(monkeypatch, KEY, "y")
    cli("backends", "connect", "moon")
    real.submit(backend="moon")
    ran = cli("backends", "disconnect", "moon", "--yes")
    assert ran.code == 0
    assert "Its jobs continue." in ran.err
    assert "is being disconnected: it gets no new jobs" in ran.err
    shown = cli("backends", "show", "moon")
    assert shown.out.startswith("moon is disconnecting")
    assert "machine mch-" in shown.out
    assert "is being disconnected" in cli("backends").out


def test_the_list_stays_what_it_was(cli: Cli, real: RealServer) -> None:
    assert cli("backends").out == cli("backends", "list").out
    assert [item["name"] for item in cli("backends", "--json").json["items"]] == ["local"]
