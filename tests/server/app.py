"""The API over a real control plane in memory and in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from tests.control.world import Rig, give_back, make_rig, service

from crucible.control.service import Control
from crucible.server.api import build_api

TOKEN = "t" * 64


@dataclass(frozen=True)
class App:
    """`rig` reaches every part of the control plane; `stops` counts requests to end the server."""

    rig: Rig
    control: Control
    api: FastAPI
    stops: list[None]


@asynccontextmanager
async def running_app(folder: Path, **options: Any) -> AsyncIterator[App]:
    """Yield an app that is ready for requests; `options` are those of `build_api`."""
    rig = await make_rig(folder)
    control, stops = service(rig), list[None]()
    given = {"token": TOKEN, "nonce": "n-1", "version": "1.2.3", "home": "/home/me/.crucible", **options}
    api = build_api(control, on_stop=lambda: stops.append(None), **given)
    yield App(rig, control, api, stops)
    await give_back(rig.ports.db)
