"""The API over a real control plane in memory and in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI
from sqlalchemy import Connection
from tests.control.fakes import FakeBackend
from tests.control.harness import ControlHarness, FakeRunner, give_back, make_harness, service

from crucible.control.control_plane import ControlPlane
from crucible.server.api import build_api
from crucible.wire.documents.messages import MessageKind

T = TypeVar("T")

TOKEN = "t" * 64


@dataclass(frozen=True)
class App:
    """`harness` reaches every part of this control plane; `stops` counts requests to end the server."""

    harness: ControlHarness
    control: ControlPlane
    api: FastAPI
    stops: list[None]

    async def ended(self, *outputs: bytes, code: int = 0, **more: Any) -> str:
        """Return a job that has ended, each of whose attempts wrote one of the outputs; the last exited with `code`."""
        job, runner = await self.harness.running(retries={"user": max(len(outputs) - 1, 0), "wait_seconds": 0}, **more)
        for output in outputs[:-1]:
            runner = await self.next_attempt(job, runner, output)
        if outputs:
            await runner.log(0, 0, outputs[-1])
        await runner.end(code)
        return job

    async def next_attempt(self, job: str, runner: FakeRunner, output: bytes) -> FakeRunner:
        """Let an attempt write its output and fail; return the runner of the one after it."""
        await runner.log(0, 0, output)
        await runner.end(code=1)
        await self.harness.place()
        following = await self.harness.runner(job)
        await following.say(MessageKind.STARTED, pid=78)
        return following


class BrokenDb:
    """A database that fails with this error, whatever is asked of it."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def read(self, fn: Callable[[Connection], T]) -> T:
        raise self._error

    async def write(self, fn: Callable[[Connection], T]) -> T:
        raise self._error

    async def close(self) -> None: ...


def broken_api(app: App, error: Exception) -> FastAPI:
    """Return the API over the same ports, but a database that fails."""
    control = ControlPlane(replace(app.harness.ports, db=BrokenDb(error)), app.harness.backends, app.harness.deployment)
    return build_api(control, token=TOKEN, nonce="n", version="1", home="/h", on_stop=lambda: None)


@asynccontextmanager
async def running_app(folder: Path, *others: FakeBackend, **options: Any) -> AsyncIterator[App]:
    """Yield an app that is ready for requests.

    `others` are backends besides `local`, `options` those of `build_api`.
    """
    harness = await make_harness(folder, *others)
    limit = options.get("bundle_limit", harness.deployment.bundle_limit)
    harness.deployment = replace(harness.deployment, bundle_limit=limit)
    control, stops = service(harness), list[None]()
    harness = replace(harness, services=control._services)
    await harness.offers.refresh()
    await harness.duties.renew(harness.ports.db, harness.clock)
    given = {"token": TOKEN, "nonce": "n-1", "version": "1.2.3", "home": "/home/me/.crucible", **options}
    api = build_api(control, on_stop=lambda: stops.append(None), **given)
    yield App(harness, control, api, stops)
    await give_back(harness.ports.db)
