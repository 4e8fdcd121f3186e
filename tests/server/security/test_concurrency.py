"""How much of the server one user, token, share link or address may have open at once."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.authorisation.populated_app import PopulatedApp
from tests.certificates import make_certificate
from tests.server.loopback import Loopback
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from crucible.core.people.identity import OWNER, Identity, LoginMethod
from crucible.server.http.listen import TlsFiles
from crucible.server.security import concurrency
from crucible.server.security.auth import IDENTITY
from crucible.server.security.concurrency import ConcurrencyLimit, agent_limits, user_limits

ANNA = Identity("usr-anna", "anna", LoginMethod.TOKEN, token="tok-1")
LINK = Identity("usr-anna", "anna", LoginMethod.SHARE, token="tok-2", job="job-1")


def scope_of(who: Identity | None, address: str = "10.0.0.1", bearer: str = "", type: str = "http") -> Scope:
    headers = [(b"authorization", f"Bearer {bearer}".encode())] if bearer else []
    return {"type": type, "path": "/", "headers": headers, "client": (address, 1), IDENTITY: who}


class Held:
    """An app that answers when it is told to."""

    def __init__(self) -> None:
        self.open = 0
        self.end = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.open += 1
        await self.end.wait()
        self.open -= 1


async def receive() -> Message:
    return {"type": "http.disconnect"}


async def statuses(limit: ConcurrencyLimit, *scopes: Scope) -> list[int]:
    """Return the statuses of those that were refused, while the others are held open."""
    refused: list[int] = []

    async def send(message: Message) -> None:
        if "status" in message:
            refused.append(message["status"])

    tasks = [asyncio.ensure_future(limit(scope, receive, send)) for scope in scopes]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    app = limit.app
    assert isinstance(app, Held)
    assert app.open == len(scopes) - len(refused)
    app.end.set()
    await asyncio.gather(*tasks)
    app.end.clear()
    return refused


def only(most: int) -> concurrency.Limits:
    def limits(scope: Scope) -> Iterator[tuple[str, int]]:
        yield scope["client"][0], most

    return limits


async def test_beyond_its_limit_a_request_is_refused_and_the_next_one_is_not() -> None:
    limit = ConcurrencyLimit(Held(), limits=only(2))
    assert await statuses(limit, *[scope_of(None)] * 3) == [429]
    assert await statuses(limit, *[scope_of(None)] * 2, scope_of(None, "10.0.0.2")) == []


@pytest.mark.parametrize(
    ("who", "most"),
    [(LINK, concurrency.PER_SHARE_LINK_AND_ADDRESS), (ANNA, concurrency.PER_TOKEN)],
    ids=["a share link", "a token"],
)
async def test_what_one_of_them_may_open(who: Identity, most: int) -> None:
    limit = ConcurrencyLimit(Held(), limits=user_limits)
    assert await statuses(limit, *[scope_of(who)] * (most + 1)) == [429]


async def test_a_share_link_from_everywhere_leaves_room_for_its_user() -> None:
    limit = ConcurrencyLimit(Held(), limits=user_limits)
    visitors = [scope_of(LINK, f"10.0.{n // 200}.{n % 200}") for n in range(2100)]
    most = concurrency.PER_SHARE_LINK
    assert len(await statuses(limit, *visitors, scope_of(ANNA), scope_of(OWNER))) == 2100 - most


async def test_the_owner_and_open_paths_are_not_limited() -> None:
    limit = ConcurrencyLimit(Held(), limits=user_limits)
    assert await statuses(limit, *[scope_of(OWNER)] * 2000, *[scope_of(None)] * 2000) == []


async def test_the_secret_of_one_attempt_leaves_room_for_other_agents() -> None:
    limit = ConcurrencyLimit(Held(), limits=agent_limits)
    greedy = [scope_of(None, bearer="one") for _ in range(concurrency.PER_AGENT + 5)]
    assert await statuses(limit, *greedy, scope_of(None, bearer="another"), scope_of(None)) == [429] * 5


async def test_what_has_ended_is_not_counted_on() -> None:
    limit = ConcurrencyLimit(Held(), limits=user_limits)
    await statuses(limit, scope_of(ANNA))
    assert not limit._open


@pytest.mark.enable_socket
async def test_over_tls_a_share_link_opens_as_many_sockets(populated_app: PopulatedApp, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    loopback = Loopback(populated_app.api, TlsFiles(certificate, key))
    await loopback.start()
    url = f"wss://localhost:{loopback.url.rpartition(':')[2]}/api/v1/jobs/{populated_app.job}/stream"
    trusted = ssl.create_default_context(cafile=str(certificate))
    most = concurrency.PER_SHARE_LINK_AND_ADDRESS
    async with contextlib.AsyncExitStack() as opened:
        for _ in range(most):
            socket = connect(url, additional_headers=populated_app.headers("share"), ssl=trusted)
            await opened.enter_async_context(socket)
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, additional_headers=populated_app.headers("share"), ssl=trusted)
        assert refused.value.response.status_code == 429
        async with connect(url, additional_headers=populated_app.headers("member"), ssl=trusted) as others:
            assert await others.recv()
    await loopback.close()
