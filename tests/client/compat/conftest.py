from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_server import TOKEN, FakeServer

from crucible import MLPlatform, SyncMLPlatform

GiB = 1024**3
BARE = {"cpus": 2, "memory_bytes": 8 * GiB}
CARD = {"cpus": 4, "memory_bytes": 16 * GiB, "gpus": [0], "gpu_memory_bytes": 16 * GiB}


def offer(kind: str, rate: int, market: str = "on_demand", **more: Any) -> dict[str, Any]:
    base = {"instance_type": kind, "rate_micros_per_hour": rate, "market": market, "capacity": CARD, "runnable": True}
    return {**base, "startup_seconds": 60, **more}


@pytest.fixture
def places(server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This computer, without a GPU, and one place that bills."""
    monkeypatch.chdir(tmp_path)
    here = offer("this computer", 0, capacity=BARE, startup_seconds=0)
    server.backends = [
        {"name": "local", "connected": True, "capabilities": {"slots": "counted"}, "offers": [here]},
        {"name": "aws", "connected": True, "offers": [offer("g4dn", 500_000), offer("g4dn", 200_000, "spot")]},
    ]


@pytest.fixture
def blocking(server: FakeServer, places: None) -> Iterator[SyncMLPlatform]:
    with SyncMLPlatform(server.url, token=TOKEN) as platform:
        yield platform


@pytest.fixture
async def platform(server: FakeServer, places: None) -> AsyncIterator[MLPlatform]:
    async with MLPlatform(server.url, token=TOKEN) as platform:
        yield platform
