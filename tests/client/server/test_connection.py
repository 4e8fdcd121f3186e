"""Which server a command talks to, and as whom."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.client import real_server
from tests.client.real_server import RealServer
from tests.server.app import TOKEN

from crucible import __version__
from crucible.client.api import Api
from crucible.client.server.connection import connect, connect_if_up, make_embedded
from crucible.settings import load_settings
from crucible.wire.process import start_time

pytestmark = pytest.mark.enable_socket


def announce(server: RealServer, folder: Path) -> None:
    """Make it the embedded server of this state folder, with the owner's token at hand."""
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text(TOKEN)
    process = {"pid": os.getpid(), "start_time": start_time(os.getpid()), "version": __version__, "nonce": "n-1"}
    (folder / "server.json").write_text(json.dumps({"url": server.url, **process}))


@pytest.fixture
def home(real: RealServer, tmp_path: Path) -> Path:
    """A state folder whose embedded server is up."""
    announce(real, tmp_path / "home")
    return tmp_path / "home"


def connected(home: Path, environ: dict[str, str]) -> list[Api]:
    environ = {"CRUCIBLE_HOME": str(home), "XDG_CONFIG_HOME": str(home), **environ}
    settings = load_settings(environ=environ, folder=home, user_config=home / "none.toml")
    embedded = make_embedded(settings, __version__, environ)
    started, up = connect(settings, embedded), connect_if_up(settings, embedded)
    assert up is not None
    return [started, up]


def token_of(api: Api) -> str:
    token = api.transport.endpoint.token
    return "" if token is None else token.reveal()


def test_the_embedded_server_is_asked_as_its_owner(home: Path) -> None:
    apis = connected(home, {})
    assert [token_of(api) for api in apis] == [TOKEN] * 2
    assert [api.server().version for api in apis] == [__version__] * 2


def test_a_token_that_was_named_is_used_there_too(home: Path, real: RealServer) -> None:
    """Whoever names one that may do less must not act as the owner."""
    apis = connected(home, {"CRUCIBLE_TOKEN": "crt_viewer"})
    assert [token_of(api) for api in apis] == ["crt_viewer"] * 2
    assert [api.transport.endpoint.url for api in apis] == [real.url] * 2
    assert all(api.transport.endpoint.embedded for api in apis)


def test_it_is_kept_when_the_server_has_moved(home: Path, tmp_path: Path) -> None:
    api = connected(home, {"CRUCIBLE_TOKEN": "crt_viewer"})[0]
    with real_server.serving(tmp_path / "second") as second:
        announce(second, home)
        api.transport.relocate()
        assert (api.transport.endpoint.url, token_of(api)) == (second.url, "crt_viewer")


def test_the_owners_token_goes_to_no_server_that_was_named(home: Path) -> None:
    named = connected(home, {"CRUCIBLE_SERVER": "http://127.0.0.1:9"})
    assert [token_of(api) for api in named] == ["", ""]
