from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.control.fakes import FakePost
from tests.server.app import TOKEN, App, broken_api
from tests.server.asgi import SocketClient
from tests.server.conftest import asking

from crucible.control.control_plane import ControlPlane
from crucible.control.runtime.durations import TimedDb
from crucible.core.errors import Trouble
from crucible.core.hooks import ENDS, HookFormat, Reply
from crucible.core.people.identity import OWNER
from crucible.core.signing import signing_secret
from crucible.server.api import build_api
from crucible.server.http import server_metrics
from crucible.server.http.server_metrics import ServerMetrics

URL = "https://hooks.example/one"


async def samples(client: httpx2.AsyncClient) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


async def test_the_service_tells_its_numbers(app: App, client: httpx2.AsyncClient) -> None:
    harness = app.harness
    _, runner = await harness.running(cpus=4.0)
    for _ in range(2):
        await harness.submit(cpus=4.0)
    await harness.reconciler.round()
    found = await samples(client)
    assert found["crucible_jobs", (("status", "queued"),)] == 2
    assert found["crucible_jobs", (("status", "running"),)] == 1
    assert found["crucible_queue_length", ()] == 2
    assert found["crucible_jobs_submitted_total", ()] == 3
    assert found["crucible_jobs_placed_total", ()] == 1
    assert found["crucible_jobs_retried_total", ()] == 0
    assert found["crucible_machines", (("backend", "local"), ("state", "up"))] == 1
    assert found["crucible_launches_total", (("backend", "local"), ("outcome", "made"))] == 1
    assert found["crucible_agents_connected", ()] == 1
    assert not [name for name, _ in found if name.startswith("crucible_db_write")], "nobody measures it here"
    await runner.end()
    found = await samples(client)
    for status, count in (("completed", 1), ("failed", 0), ("cancelled", 0)):
        assert found["crucible_jobs_ended_total", (("status", status),)] == count


async def test_the_time_of_writes_is_told_where_it_is_measured(app: App) -> None:
    timed = TimedDb(app.harness.ports.db, app.harness.clock)
    control = ControlPlane(replace(app.harness.ports, db=timed), app.harness.backends, app.harness.deployment)
    await timed.write(lambda conn: app.harness.clock.move(0.5))
    api = build_api(control, token=TOKEN, nonce="n", version="1", home="/h", on_stop=lambda: None)
    async with asking(api, TOKEN) as client:
        found = await samples(client)
    assert found["crucible_db_write_seconds_bucket", (("le", "+Inf"),)] == 1
    assert found["crucible_db_write_seconds_bucket", (("le", "0.25"),)] == 0
    assert found["crucible_db_write_seconds_sum", ()] == 0.5


async def test_what_was_sent_to_hooks_is_counted(app: App, client: httpx2.AsyncClient) -> None:
    post, hooks = app.harness.deployment.post, app.control.hooks
    assert isinstance(post, FakePost)
    hook = await hooks.add(OWNER, "default", URL, events=ENDS, format=HookFormat.JSON, secret=signing_secret(b"k" * 32))
    post.replies[URL] = [Reply(200, "thanks"), Reply(None, "nobody answers")]
    for _ in range(2):
        await hooks.test(OWNER, "default", hook.id)
    found = await samples(client)
    assert found["crucible_webhooks_total", (("outcome", "delivered"),)] == 1
    assert found["crucible_webhooks_total", (("outcome", "failed"),)] == 1
    assert found["crucible_webhooks_waiting", ()] == 0
    assert found["crucible_webhook_seconds_bucket", (("le", "+Inf"),)] == 2
    assert found["crucible_webhook_seconds_sum", ()] == 0.0


async def test_requests_are_told_by_their_routes_template(app: App, client: httpx2.AsyncClient) -> None:
    job = await app.harness.submit()
    for ref in (job, job[-6:], "zzzzzz", "yyyyyy"):
        await client.get(f"/api/v1/jobs/{ref}")
    for path in ("/nothing/here", "/nothing/there"):
        await client.get(path)
    found = await samples(client)
    routes = {dict(labels)["route"] for (name, labels) in found if name == "crucible_http_request_seconds_count"}
    assert routes == {"/api/v1/jobs/{id}", "(none)"}
    labels = (("method", "GET"), ("route", "/api/v1/jobs/{id}"), ("status", "404"))
    assert found["crucible_http_request_seconds_count", labels] == 2


async def test_a_made_up_method_has_no_label_of_its_own(client: httpx2.AsyncClient) -> None:
    for method in ("FOO", "BAR"):
        await client.request(method, "/api/v1/jobs")
    found = await samples(client)
    methods = {dict(labels)["method"] for (name, labels) in found if name == "crucible_http_request_seconds_count"}
    assert methods == {"(other)"}


async def test_it_needs_the_token_and_who_is_refused_is_counted(
    anonymous: httpx2.AsyncClient, client: httpx2.AsyncClient
) -> None:
    assert (await anonymous.get("/metrics")).status_code == 401
    labels = (("method", "GET"), ("route", "(none)"), ("status", "401"))
    assert (await samples(client))["crucible_http_request_seconds_count", labels] == 1


async def test_a_database_in_trouble_is_a_problem(app: App) -> None:
    async with asking(broken_api(app, Trouble("The disk is away.", fix="Bring it back.")), TOKEN) as client:
        assert (await client.get("/metrics")).status_code == 503
        assert (await client.post("/metrics")).status_code == 405


async def test_open_sockets_are_counted(app: App, client: httpx2.AsyncClient) -> None:
    job = await app.harness.submit()
    async with SocketClient(app.api, f"/api/v1/jobs/{job}/stream", {"Authorization": f"Bearer {TOKEN}"}) as socket:
        await socket.accepted()
        assert (await samples(client))["crucible_websockets", ()] == 1
    assert (await samples(client))["crucible_websockets", ()] == 0


async def test_the_loops_lateness_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_metrics, "LAG_SECONDS", 0.001)
    watched = ServerMetrics()
    watched.watch_loop()
    async with asyncio.timeout(10):
        while not watched.registry.get_sample_value("crucible_event_loop_lag_seconds_count"):
            await asyncio.sleep(0)


async def test_it_is_measured_once_however_often_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[float] = []
    monkeypatch.setattr(ServerMetrics, "_measure", lambda self, loop, due: begun.append(due))
    watched = ServerMetrics()
    for _ in range(3):
        watched.watch_loop()
    assert len(begun) == 1


async def test_two_servers_in_one_process_count_apart() -> None:
    first, second = ServerMetrics(), ServerMetrics()
    first.sockets.inc()
    assert second.registry.get_sample_value("crucible_websockets") == 0
