"""Fixtures for the API and the agents' listener over a control plane in memory, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from tests.authorisation.populated_app import OWNERS, PopulatedApp, populate
from tests.control.harness import give_back, make_harness
from tests.postgres import postgres_server, postgres_url
from tests.server.app import TOKEN, App, running_app

from crucible.server.agents.api import build_agents_api
from crucible.server.streams.follow import StreamTiming

__all__ = ["postgres_server", "postgres_url"]

TIMING = StreamTiming(send=0.05, close=0.05, look=5.0, points=0.0, settle=0.05, look_at_end=0.01)


@pytest.fixture(scope="session")
def document(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The OpenAPI document as it is served; once per session, because generating it takes long."""

    async def served() -> Any:
        async with running_app(tmp_path_factory.mktemp("document")) as app, asking(app.api, TOKEN) as client:
            return (await client.get("/openapi.json")).raise_for_status().json()

    return asyncio.run(served())


def asking(api: FastAPI, token: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(api), base_url="http://127.0.0.1", headers=headers)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    """The API over a real control plane with one backend and no jobs."""
    async with running_app(tmp_path, agents_url="http://127.0.0.1:2", bundle_limit=1000, timing=TIMING) as found:
        yield found


@pytest.fixture
async def client(app: App) -> AsyncIterator[httpx2.AsyncClient]:
    """Asks that API as the owner."""
    async with asking(app.api, TOKEN) as client:
        yield client


@pytest.fixture
async def anonymous(app: App) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of that API without a token."""
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app.api), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
async def agent(app: App) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the agents' listener."""
    transport = httpx2.ASGITransport(build_agents_api(app.control.agents))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
async def populated_app(tmp_path: Path) -> AsyncIterator[PopulatedApp]:
    """A real control plane with users, and its API."""
    harness = await make_harness(tmp_path)
    yield await populate(harness)
    await give_back(harness.ports.db)


@pytest.fixture
async def owner(populated_app: PopulatedApp) -> AsyncIterator[httpx2.AsyncClient]:
    """Asks that API as the owner."""
    async with asking(populated_app.api, OWNERS) as client:
        yield client
