"""Which server a command talks to, and as whom."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from crucible.client.api import Api
from crucible.client.server.connection import connect, connect_if_up
from crucible.client.server.embedded import Embedded
from crucible.client.transport.http import Endpoint
from crucible.core.secret import Secret
from crucible.settings import load_settings

OWN = Endpoint("http://127.0.0.1:7", Secret("the owner's"), embedded=True)


class FakeEmbedded:
    """Up, with the owner's token at hand, as in a state folder of one's own."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ

    def ensure(self) -> Endpoint:
        return OWN

    def find_running(self) -> Endpoint | None:
        return OWN


def connected(folder: Path, environ: dict[str, str]) -> list[Api]:
    settings = load_settings(environ=environ, folder=folder, user_config=folder / "none.toml")
    embedded = cast(Embedded, FakeEmbedded(environ))
    started, up = connect(settings, embedded), connect_if_up(settings, embedded)
    assert up is not None
    return [started, up]


def token_of(api: Api) -> str:
    token = api.transport.endpoint.token
    return "" if token is None else token.reveal()


def test_the_embedded_server_is_asked_as_its_owner(tmp_path: Path) -> None:
    assert [token_of(api) for api in connected(tmp_path, {})] == ["the owner's"] * 2


def test_a_token_that_was_named_is_used_there_too(tmp_path: Path) -> None:
    """Whoever names one that may do less must not act as the owner."""
    apis = connected(tmp_path, {"CRUCIBLE_TOKEN": "crt_viewer"})
    assert [token_of(api) for api in apis] == ["crt_viewer"] * 2
    assert all(api.transport.endpoint.embedded for api in apis)


def test_it_is_kept_when_the_server_has_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = connected(tmp_path, {"CRUCIBLE_TOKEN": "crt_viewer"})[0]
    monkeypatch.setattr(FakeEmbedded, "ensure", lambda self: Endpoint("http://127.0.0.1:8", OWN.token, embedded=True))
    api.transport.relocate()
    assert (api.transport.endpoint.url, token_of(api)) == ("http://127.0.0.1:8", "crt_viewer")


def test_the_owners_token_goes_to_no_server_that_was_named(tmp_path: Path) -> None:
    named = connected(tmp_path, {"CRUCIBLE_SERVER": "http://127.0.0.1:9", "CRUCIBLE_HOME": str(tmp_path)})
    assert [token_of(api) for api in named] == ["", ""]
