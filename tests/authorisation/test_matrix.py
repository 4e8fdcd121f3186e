"""Every route and socket, asked by everybody there is. A route without a row fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.authorisation.populated_app import CODE, PopulatedApp, populate
from tests.control.harness import ControlHarness, give_back, job_spec, make_harness, sha
from tests.fast_passwords import quick_passwords
from tests.server.asgi import SocketClient
from tests.server.openapi_contract import wrong_with_answer
from tests.server.security.test_auth import routes

from crucible.core.hooks import ENDS, HookFormat
from crucible.core.people.identity import OWNER
from crucible.core.secret import Secret
from crucible.core.signing import signing_secret

__all__ = ["quick_passwords"]

ALLOWED = Path(__file__).parent / "allowed.txt"
OPENED = 101

FILL = {
    "{path:path}": "model.pt",
    "{checkpoint}": "latest",
    "{sha256}": sha(CODE),
    "{project}": "alpha",
    "{backend}": "local",
    "{note}": "nte-1",
    "{type}": "g4dn.xlarge",
}
NAMES = {"PUT": "viewer", "DELETE": "viewer", "PATCH": "stranger"}

CODE_OF_IT = {"command": ["true"]}
TRAINING = {"model_name": "x", "tenant_id": "alpha", "config": CODE_OF_IT}
BODIES: dict[str, Any] = {
    "POST /api/v1/jobs": {"command": ["true"], "project": "alpha"},
    "POST /api/v1/plan": {"command": ["true"]},
    "POST /api/v1/backends/{backend}/check": {"settings": {"projects": ["alpha"]}},
    "POST /api/v1/backends/{backend}/connect": {"settings": {"projects": ["alpha"]}},
    "PATCH /api/v1/jobs/{id}": {"name": "other"},
    "POST /api/v1/jobs/bulk": {"jobs": [{"spec": {"command": ["true"], "project": "alpha"}}]},
    "POST /api/v1/jobs/cancel": {"filter": {"project": ["alpha"]}},
    "POST /api/v1/jobs/{id}/tags": {"add": ["seen"]},
    "POST /api/v1/jobs/{id}/notes": {"text": "I was here"},
    "POST /api/v1/models/{name}/jobs": {},
    "POST /api/v1/training": TRAINING,
    "POST /api/v1/training/create": TRAINING,
    "POST /orchestrate": {"tenant_id": "alpha", "training_params": CODE_OF_IT, "model_params": {"architecture": "x"}},
    "POST /api/v1/db/backup": {"path": "/nowhere/at/all"},
    "POST /api/v1/catalog/refresh": {"provider": "modal"},
    "POST /api/v1/users": {"name": "new"},
    "PATCH /api/v1/users/{name}": {"disabled": False},
    "POST /api/v1/projects": {"name": "gamma"},
    "PUT /api/v1/projects/{project}/members/{name}": {"role": "member"},
    "PUT /api/v1/projects/{project}/secrets/{name}": {"value": "a value to keep"},
    "POST /api/v1/projects/{project}/hooks": {"url": "https://hooks.example/x"},
    "PATCH /api/v1/projects/{project}/hooks/{hook}": {"events": ["failed"]},
    "POST /api/v1/tokens": {"name": "mine", "scopes": ["read"]},
}
QUERIES = {
    "GET /api/v1/jobs/{id}/logs/search": {"q": "line"},
    "GET /api/v1/audit": {"project": "alpha"},
    "GET /login": {"code": "abc"},
}
SIGNING = signing_secret(b"k" * 32)
JOB_QUERIES = {"GET /status": "task_id"}


def table() -> tuple[list[str], dict[str, list[int]]]:
    lines = [line.split() for line in ALLOWED.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return lines[0], {f"{method} {path}": [int(s) for s in statuses] for method, path, *statuses in lines[1:]}


IDENTITIES, ROWS = table()


@pytest.fixture
async def populated_app(tmp_path: Path) -> AsyncIterator[PopulatedApp]:
    harness: ControlHarness = await make_harness(tmp_path)
    yield await populate(harness)
    await give_back(harness.ports.db)


async def path_of(populated_app: PopulatedApp, method: str, path: str) -> str:
    fill = {**FILL, "{id}": populated_app.job, "{job_id}": populated_app.job, "{name}": NAMES.get(method, "viewer")}
    if "/secrets/" in path and method == "DELETE":
        await populated_app.control.secrets.set(
            await populated_app.identity("manager"), "alpha", fill["{name}"], Secret("a value to keep")
        )
    if "{hook}" in path:
        fill["{hook}"] = await add_hook(populated_app)
    if "{token}" in path:
        fill["{token}"] = str((await populated_app.identity("admin")).token)
    if "{machine}" in path:
        fill["{machine}"] = (await populated_app.harness.machine()).id
    for name, value in fill.items():
        path = path.replace(name, value)
    return path


async def add_hook(populated_app: PopulatedApp) -> str:
    manager, wish = (
        await populated_app.identity("manager"),
        {"events": ENDS, "format": HookFormat.JSON, "secret": SIGNING},
    )
    made = await populated_app.control.hooks.add(manager, "alpha", "https://hooks.example/x", **wish)  # type: ignore[arg-type]
    return made.id


async def query_of(populated_app: PopulatedApp, row: str) -> dict[str, Any] | None:
    if row == "GET /api/v1/compare":
        another = await populated_app.control.jobs.submit(OWNER, job_spec(project="alpha"), None)
        return {"job": [populated_app.job, another.view.id]}
    return {JOB_QUERIES[row]: populated_app.job} if row in JOB_QUERIES else QUERIES.get(row)


async def ask(populated_app: PopulatedApp, identity: str, row: str, path: str) -> int:
    headers = populated_app.headers(identity)
    method = row.split()[0]
    if method == "WS":
        async with SocketClient(populated_app.api, path, headers) as socket:
            return await socket.status()
    if row == "PUT /api/v1/bundles/{sha256}":
        given: dict[str, Any] = {"content": CODE}
    elif row == "POST /login":
        given = {"content": b"code=abc"}
    elif row == "POST /api/v1/login":
        given = {"json": {"name": identity, "password": "a wrong password"}}
    else:
        given = {"json": BODIES[row]} if row in BODIES else {}
    query = await query_of(populated_app, row)
    request = httpx2.Request(method, f"http://127.0.0.1{path}", headers=headers, params=query, **given)
    answer = await httpx2.ASGITransport(populated_app.api).handle_async_request(request)
    await answer.aread()
    assert not list(wrong_with_answer(row, answer.status_code, answer.content))
    return answer.status_code


@pytest.mark.parametrize("row", ROWS)
async def test_a_row(populated_app: PopulatedApp, row: str) -> None:
    path = await path_of(populated_app, *row.split())
    got = {identity: await ask(populated_app, identity, row, path) for identity in IDENTITIES}
    assert got == dict(zip(IDENTITIES, ROWS[row], strict=True))


async def test_every_route_has_a_row(populated_app: PopulatedApp) -> None:
    assert {f"{method} {path}" for method, path in routes(populated_app.api)} == set(ROWS)
