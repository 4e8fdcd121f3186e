"""Whoever asks too often waits, and nobody else does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from tests.authorisation.populated_app import OWNERS, PopulatedApp, token_of

from crucible.server.api import build_api
from crucible.server.security import rate_limits
from crucible.server.security.rate_limits import Rate, TokenBuckets


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_a_bucket_gives_its_burst_and_then_what_time_fills_in() -> None:
    clock = Clock()
    buckets = TokenBuckets(Rate(2.0, 3), clock)
    assert [buckets.take("a") for _ in range(3)] == [0.0] * 3
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.take("b") == 0.0, "each has his own"
    clock.time += 0.5
    assert (buckets.take("a"), buckets.take("a") > 0) == (0.0, True)
    clock.time += 1000
    assert [buckets.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, pytest.approx(0.5)]


def test_no_more_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "MAX_BUCKETS", 10)
    buckets = TokenBuckets(Rate(1.0, 1), Clock())
    for n in range(100):
        buckets.take(str(n))
    assert len(buckets._left) == 10


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few at once, and nothing to speak of after that."""
    monkeypatch.setattr(rate_limits, "USERS", Rate(0.5, 20))
    monkeypatch.setattr(rate_limits, "ANONYMOUS", Rate(0.5, 5))


@pytest.fixture
async def client(populated_app: PopulatedApp) -> AsyncIterator[httpx2.AsyncClient]:
    """Asks a server of its own, with those limits."""
    api = build_api(populated_app.control, token=OWNERS, nonce="n", version="1", home="/h", on_stop=lambda: None)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(api), base_url="http://127.0.0.1") as client:
        yield client


async def statuses(client: httpx2.AsyncClient, token: str, count: int) -> list[int]:
    headers = {"Authorization": f"Bearer {token}"}
    return [(await client.get("/api/v1/tiers", headers=headers)).status_code for _ in range(count)]


async def test_one_user_is_held_up_and_no_other(populated_app: PopulatedApp, client: httpx2.AsyncClient) -> None:
    asked = await statuses(client, populated_app.tokens["member"], 25)
    assert (asked[:20], asked[-1]) == ([200] * 20, 429)
    assert await statuses(client, populated_app.tokens["viewer"], 3) == [200] * 3


async def test_further_tokens_of_a_user_are_no_way_round_it(
    populated_app: PopulatedApp, client: httpx2.AsyncClient
) -> None:
    other = await token_of(populated_app.control, "member")
    await statuses(client, populated_app.tokens["member"], 20)
    assert await statuses(client, other, 1) == [429]


async def test_who_looks_on_by_a_share_link_does_not_hold_up_the_one_who_gave_it(
    populated_app: PopulatedApp, client: httpx2.AsyncClient
) -> None:
    await statuses(client, populated_app.tokens["share"], 20)
    assert await statuses(client, populated_app.tokens["member"], 1) == [200]


async def test_the_answer_says_how_long_to_wait(populated_app: PopulatedApp, client: httpx2.AsyncClient) -> None:
    await statuses(client, populated_app.tokens["member"], 20)
    answer = await client.get("/api/v1/tiers", headers=populated_app.headers("member"))
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_tries")
    assert answer.headers["Retry-After"] in ("1", "2")


async def test_the_owner_is_not_held_up(client: httpx2.AsyncClient) -> None:
    assert set(await statuses(client, OWNERS, 100)) == {200}


async def test_logins_are_few(client: httpx2.AsyncClient) -> None:
    asked = [(await client.post("/api/v1/login", json={})).status_code for _ in range(rate_limits.ANONYMOUS.burst + 3)]
    assert asked[:2] == [422, 422]
    assert asked[-1] == 429


async def test_health_is_answered_however_often(client: httpx2.AsyncClient) -> None:
    asked = [(await client.get("/healthz")).status_code for _ in range(rate_limits.ANONYMOUS.burst + 30)]
    assert set(asked) == {200}
