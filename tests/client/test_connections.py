"""Connecting backends from Python."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.real_server import RealServer
from tests.control.moon import KEY
from tests.server.app import TOKEN

from crucible import MLPlatform, SyncMLPlatform
from crucible.core.errors import BadInput, NotFound, UnknownName

pytestmark = pytest.mark.enable_socket


def test_connect_show_check_and_disconnect(real: RealServer) -> None:
    with SyncMLPlatform(real.url, token=TOKEN) as platform:
        assert platform.check_backend("moon", api_key=KEY).ok
        assert platform.backend("moon").state == "not connected"
        done = platform.connect_backend("moon", api_key=KEY, hosts=["a", "b"], most=3)
        assert (done.connected, done.changes[0].after) == (True, "***")
        assert {item.name for item in platform.backends()} == {"local", "moon"}
        assert platform.connect_backend("moon", most=None).changes[0].before == "3"
        assert KEY not in platform.backend("moon").model_dump_json()
        assert platform.disconnect_backend("moon").state == "not connected"
        with pytest.raises(NotFound):
            platform.disconnect_backend("moon")


def test_errors_carry_what_was_found(real: RealServer) -> None:
    with SyncMLPlatform(real.url, token=TOKEN) as platform:
        with pytest.raises(BadInput) as caught:
            platform.connect_backend("moon", api_key="wrong-key")
        assert [finding["ok"] for finding in caught.value.data["findings"]] == [True, False]  # type: ignore[index, union-attr]
        with pytest.raises(BadInput) as caught:
            platform.connect_backend("moon")
        assert caught.value.data["missing"] == ["api_key"]
        with pytest.raises(UnknownName):
            platform.connect_backend("moon", api_kye=KEY)


def test_without_blocking(real: RealServer) -> None:
    async def use() -> None:
        async with MLPlatform(real.url, token=TOKEN) as platform:
            assert (await platform.check_backend("moon", api_key=KEY)).ok
            assert (await platform.connect_backend("moon", api_key=KEY)).connected
            assert (await platform.backend("moon")).state == "connected"
            assert (await platform.disconnect_backend("moon")).state == "not connected"

    asyncio.run(use())
