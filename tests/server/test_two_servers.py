"""Two servers on one PostgreSQL database: what one of them refuses, ends or limits holds at the other too."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from obstore.store import MemoryStore
from tests.authorisation.populated_app import CODE, OWNERS, TIMING, PopulatedApp, populate
from tests.control.fakes import DEPLOYMENT, CountedIds, EvenRandom, FakeBackend, FakeClock, FakePost, InlineCalls
from tests.control.harness import KEY, ControlHarness, FakeRunner, secret, sha
from tests.fast_passwords import quick_passwords
from tests.server.asgi import SocketClient
from tests.server.conftest import asking

from crucible.backends.base import OnDemand
from crucible.control.control_plane import ControlPlane
from crucible.control.db import open_database
from crucible.control.db.postgres.database import PostgresDb
from crucible.control.db.postgres.notify import PostgresWakeups
from crucible.control.jobs.queue_limit import QueueLimit
from crucible.control.runtime.ports import Ports
from crucible.control.runtime.services import Deployment, Services
from crucible.core.people.identity import OWNER
from crucible.core.requests import UserChange
from crucible.server.agents.api import build_agents_api
from crucible.server.api import build_api
from crucible.storage import ObjectStore
from crucible.wire.documents.messages import MessageKind

__all__ = ["quick_passwords"]

pytestmark = pytest.mark.enable_socket

QUEUED = 5
PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Server:
    """One of the servers, and its agents' listener."""

    control: ControlPlane
    api: Any
    agents_api: Any

    def asking(self, token: str) -> httpx2.AsyncClient:
        return asking(self.api, token)

    @asynccontextmanager
    async def as_agent(self, purpose: str, name: str) -> AsyncIterator[httpx2.AsyncClient]:
        async with asking(self.agents_api, secret(purpose, name).decode()) as client:
            yield client


@dataclass(frozen=True)
class Pair:
    """`app` is the first server, with its users and a running job."""

    app: PopulatedApp
    first: Server
    second: Server

    @property
    def job(self) -> str:
        return self.app.job

    def token(self, identity: str) -> str:
        return self.app.tokens[identity]

    async def attempt(self) -> tuple[str, str]:
        """Return the attempt of the running job, and its machine."""
        world = await self.app.harness.world(self.job)
        return world.attempts[-1].id, world.attempts[-1].slots[0].machine


@pytest.fixture
async def pair(tmp_path: Path, postgres_url: str) -> AsyncIterator[Pair]:
    await open_database(postgres_url).close()
    clock, calls, backend = FakeClock(), InlineCalls(), FakeBackend()
    cloud = FakeBackend("cloud", replace(backend.capabilities, capacity=OnDemand(), in_place=False))
    ports = Ports(
        clock,
        CountedIds(clock),
        EvenRandom(),
        PostgresDb(postgres_url, server_clock=False),
        ObjectStore(MemoryStore()),
        calls,
        PostgresWakeups(postgres_url),
        "w1",
    )
    others = replace(
        ports, db=PostgresDb(postgres_url, server_clock=False), wakeups=PostgresWakeups(postgres_url), worker="w2"
    )
    given = Deployment(
        DEPLOYMENT,
        KEY,
        "http://agents",
        tmp_path,
        1000,
        post=FakePost(clock),
        shared=True,
        shared_computer=True,
        queue_limit=QueueLimit(QUEUED),
    )
    for wakeups in (ports.wakeups, others.wakeups):
        assert isinstance(wakeups, PostgresWakeups)
        await wakeups.start()
        await wakeups.connected(30)
    backends: dict[str, Any] = {"local": backend, "cloud": cloud}
    harness = ControlHarness(clock, calls, backend, backends, Services(ports, backends, given))
    await harness.offers.refresh()
    await harness.duties.renew(ports.db, clock)
    app = await populate(harness)
    control = ControlPlane(others, backends, given)
    await control._services.offers.refresh()
    api = build_api(control, token=OWNERS, nonce="n", version="1", home="/h", on_stop=lambda: None, timing=TIMING)
    first = Server(app.control, app.api, build_agents_api(app.control.agents))
    yield Pair(app, first, Server(control, api, build_agents_api(control.agents)))
    for each in (ports, others):
        await each.wakeups.close()  # type: ignore[attr-defined]
        await each.db.close()


def spec(**more: object) -> dict[str, object]:
    size = {"cpus": 4, "memory_bytes": 2**30}
    return {"command": ["true"], "project": "alpha", "resources": size, **more}


@pytest.mark.parametrize("how", ["revoked", "disabled", "removed"])
async def test_who_loses_access_at_one_server_loses_their_sockets_at_the_other(pair: Pair, how: str) -> None:
    bearer = {"authorization": f"Bearer {pair.token('member')}"}
    who = await pair.app.identity("member")
    async with SocketClient(pair.second.api, f"/api/v1/jobs/{pair.job}/stream", bearer) as socket:
        await socket.accepted()
        if how == "revoked":
            await pair.first.control.tokens.revoke(OWNER, str(who.token))
        elif how == "disabled":
            await pair.first.control.people.change_user(OWNER, "member", UserChange(disabled=True))
        else:
            await pair.first.control.people.remove_member(OWNER, "alpha", "member")
        _, code = await socket.frames_until_close()
        assert code != 1000
    async with pair.second.asking(pair.token("member")) as client:
        expected = 404 if how == "removed" else 401
        assert (await client.get(f"/api/v1/jobs/{pair.job}")).status_code == expected


async def test_an_attempts_secret_ends_at_both_servers(pair: Pair) -> None:
    attempt, _ = await pair.attempt()
    path, digest = f"/agent/v1/attempts/{attempt}/0", sha(b"late")
    first, second = (FakeRunner(server.control.agents, attempt) for server in (pair.first, pair.second))
    async with pair.second.as_agent("attempt", attempt) as agent:
        assert (await agent.get(f"/agent/v1/bundles/{sha(CODE)}?attempt={attempt}")).content == CODE
        first.n = second.n = 5
        await second.say(MessageKind.NOTE, text="the other server knows the attempt")
        first.n = second.n
        await first.end()
        with_hash = {"X-Content-SHA256": digest}
        answers = [
            await agent.get(f"/agent/v1/bundles/{sha(CODE)}?attempt={attempt}"),
            await agent.get(f"{path}/secrets"),
            await agent.put(f"{path}/artifacts/model.pt", content=b"late", headers=with_hash),
            await agent.put(f"{path}/checkpoints/{digest}", content=b"late", headers=with_hash),
            await agent.put(f"{path}/logs/9?start=0&lines=0", content=b"late", headers=with_hash),
            await agent.post(f"{path}/tail?start=0", content=b"late"),
        ]
        assert Counter(answer.status_code for answer in answers) == {410: len(answers)}, answers


async def launched(pair: Pair) -> dict[str, str]:
    """Return the claim of a machine's host; nobody has claimed it yet."""
    harness = pair.app.harness
    await harness.submit(backend="cloud")
    while await harness.performer.perform_due():
        pass
    machine = (await harness.machine()).id
    return {"machine": machine, "nonce": secret("nonce", machine).decode(), "native_id": f"i-{machine}"}


async def test_a_claim_is_repeated_at_either_server_until_one_has_heard_from_the_host(pair: Pair) -> None:
    claim = await launched(pair)
    machine = claim["machine"]
    async with asking(pair.first.agents_api, "") as one, asking(pair.second.agents_api, "") as other:
        for client in (one, other, one):
            answer = await client.post("/agent/v1/claim", json=claim)
            assert answer.json() == {"secret": secret("machine", machine).decode()}
        async with pair.first.as_agent("machine", machine) as host:
            assert (await host.get(f"/agent/v1/machines/{machine}/desired?version=0")).status_code == 200
        for client in (one, other):
            assert (await client.post("/agent/v1/claim", json=claim)).status_code == 409


async def test_of_two_hosts_that_claim_at_both_servers_one_wins(pair: Pair) -> None:
    claim = await launched(pair)
    async with asking(pair.first.agents_api, "") as one, asking(pair.second.agents_api, "") as other:
        claims = [
            client.post("/agent/v1/claim", json={**claim, "native_id": native})
            for native, client in (("i-one", one), ("i-other", other))
        ]
        assert sorted(answer.status_code for answer in await asyncio.gather(*claims)) == [200, 409]


async def test_the_limit_of_queued_jobs_holds_for_submissions_at_both(pair: Pair) -> None:
    async with pair.first.asking(pair.token("member")) as one, pair.second.asking(pair.token("member")) as other:
        both = [client.post("/api/v1/jobs", json=spec()) for _ in range(QUEUED) for client in (one, other)]
        statuses = Counter(answer.status_code for answer in await asyncio.gather(*both))
        assert statuses == {201: QUEUED, 409: QUEUED}
        queued = (await other.get("/api/v1/jobs?status=queued")).json()["items"]
        assert len(queued) == QUEUED


async def test_bulk_submissions_at_both_stay_within_the_limit(pair: Pair) -> None:
    batch = {"jobs": [{"spec": spec()} for _ in range(QUEUED - 1)]}
    async with pair.first.asking(pair.token("member")) as one, pair.second.asking(pair.token("member")) as other:
        answers = await asyncio.gather(*(client.post("/api/v1/jobs/bulk", json=batch) for client in (one, other)))
        assert {answer.status_code for answer in answers} <= {200, 409}
        queued = (await one.get("/api/v1/jobs?status=queued")).json()["items"]
        assert QUEUED - 1 <= len(queued) <= QUEUED
        late = await other.post("/api/v1/jobs/bulk", json={"jobs": [{"spec": spec()} for _ in range(QUEUED)]})
        assert (late.status_code, late.json()["code"]) == (409, "queue_full")
        assert len((await one.get("/api/v1/jobs?status=queued")).json()["items"]) == len(queued)


async def test_a_key_makes_one_job_at_both(pair: Pair) -> None:
    headers = {"Idempotency-Key": "k1"}
    async with pair.first.asking(pair.token("member")) as one, pair.second.asking(pair.token("member")) as other:
        both = [client.post("/api/v1/jobs", json=spec(), headers=headers) for client in (one, other) for _ in range(3)]
        answers = await asyncio.gather(*both)
        assert Counter(answer.status_code for answer in answers) == {201: 1, 200: 5}
        assert len({answer.json()["id"] for answer in answers}) == 1


async def test_a_login_link_works_at_one_of_them_once(pair: Pair) -> None:
    async with pair.first.asking(OWNERS) as one, pair.second.asking("") as other:
        link = (await one.post("/api/v1/login/links")).json()["url"]
        page = await other.get(link, headers={"Accept": "text/html"})
        code = page.text.split('value="')[1].split('"')[0]
        del one.headers["Authorization"], other.headers["Authorization"]
        origin = {"Origin": "http://127.0.0.1", "Content-Type": "application/x-www-form-urlencoded"}
        both = [client.post("/login", content=f"code={code}", headers=origin) for client in (one, other)]
        answers = await asyncio.gather(*both)
        assert sorted(answer.status_code == 200 for answer in answers) == [False, True]
        session = next(c.cookies["crucible_session"] for c in (one, other) if "crucible_session" in c.cookies)
        await pair.first.control.tokens.revoke(OWNER, await session_id(pair, session))
        other.cookies.clear()
        answer = await other.get("/api/v1/me", headers={"Cookie": f"crucible_session={session}"})
        assert answer.status_code == 401


async def session_id(pair: Pair, session: str) -> str:
    who = await pair.second.control.tokens.identify(session)
    assert who is not None
    return str(who.token)
