from __future__ import annotations

import asyncio

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.server.app import App
from tests.server.asgi import SocketClient
from tests.server.conftest import TOKEN
from tests.server.fake_control import FakeControl

from crucible.core.errors import Trouble
from crucible.server import meters
from crucible.server.meters import Meters


async def samples(http: httpx2.AsyncClient) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


async def test_the_service_tells_its_numbers(http: httpx2.AsyncClient) -> None:
    found = await samples(http)
    assert found["crucible_jobs", (("status", "queued"),)] == 3
    assert found["crucible_jobs_ended_total", (("status", "completed"),)] == 4
    assert found["crucible_jobs_submitted_total", ()] == 9
    assert found["crucible_queue_length", ()] == 1
    assert found["crucible_machines", (("backend", "local"), ("state", "up"))] == 1
    assert found["crucible_launches_total", (("backend", "local"), ("outcome", "made"))] == 1
    assert found["crucible_agents_connected", ()] == 1
    assert found["crucible_db_write_seconds_bucket", (("le", "+Inf"),)] == 7
    assert found["crucible_db_write_seconds_sum", ()] == 3.5
    assert found["crucible_webhooks_total", (("outcome", "delivered"),)] == 5
    assert found["crucible_webhooks_total", (("outcome", "failed"),)] == 1
    assert found["crucible_webhooks_waiting", ()] == 2
    assert found["crucible_webhook_seconds_bucket", (("le", "+Inf"),)] == 6
    assert found["crucible_webhook_seconds_sum", ()] == 2.5


async def test_requests_are_told_by_their_routes_template(client: httpx2.AsyncClient, app: App) -> None:
    job = await app.rig.submit()
    for ref in (job, job[-6:], "zzzzzz", "yyyyyy"):
        await client.get(f"/api/v1/jobs/{ref}")
    for path in ("/nothing/here", "/nothing/there"):
        await client.get(path)
    found = await samples(client)
    routes = {dict(labels)["route"] for (name, labels) in found if name == "crucible_http_request_seconds_count"}
    assert routes == {"/api/v1/jobs/{id}", "(none)"}
    labels = (("method", "GET"), ("route", "/api/v1/jobs/{id}"), ("status", "404"))
    assert found["crucible_http_request_seconds_count", labels] == 2


async def test_a_made_up_method_has_no_label_of_its_own(http: httpx2.AsyncClient) -> None:
    for method in ("FOO", "BAR"):
        await http.request(method, "/api/v1/jobs")
    found = await samples(http)
    methods = {dict(labels)["method"] for (name, labels) in found if name == "crucible_http_request_seconds_count"}
    assert methods == {"(other)"}


async def test_it_needs_the_token_and_who_is_refused_is_counted(
    anonymous: httpx2.AsyncClient, http: httpx2.AsyncClient
) -> None:
    assert (await anonymous.get("/metrics")).status_code == 401
    labels = (("method", "GET"), ("route", "(none)"), ("status", "401"))
    assert (await samples(http))["crucible_http_request_seconds_count", labels] == 1


async def test_a_database_in_trouble_is_a_problem(http: httpx2.AsyncClient, control: FakeControl) -> None:
    control.breaks = Trouble("The disk is away.", fix="Bring it back.")
    assert (await http.get("/metrics")).status_code == 503
    assert (await http.post("/metrics")).status_code == 405


async def test_open_sockets_are_counted(client: httpx2.AsyncClient, app: App) -> None:
    job = await app.rig.submit()
    async with SocketClient(app.api, f"/api/v1/jobs/{job}/stream", {"Authorization": f"Bearer {TOKEN}"}) as socket:
        await socket.accepted()
        assert (await samples(client))["crucible_websockets", ()] == 1
    assert (await samples(client))["crucible_websockets", ()] == 0


async def test_the_loops_lateness_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "LAG_SECONDS", 0.001)
    watched = Meters()
    watched.watch_loop()
    async with asyncio.timeout(10):
        while not watched.registry.get_sample_value("crucible_event_loop_lag_seconds_count"):
            await asyncio.sleep(0)


async def test_it_is_measured_once_however_often_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[float] = []
    monkeypatch.setattr(Meters, "_measure", lambda self, loop, due: begun.append(due))
    watched = Meters()
    for _ in range(3):
        watched.watch_loop()
    assert len(begun) == 1


async def test_two_servers_in_one_process_count_apart() -> None:
    first, second = Meters(), Meters()
    first.sockets.inc()
    assert second.registry.get_sample_value("crucible_websockets") == 0
