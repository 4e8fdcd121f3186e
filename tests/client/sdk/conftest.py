from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.real_server import RealServer
from tests.control.clouds import FakeCloud
from tests.control.fakes import FakeBackend
from tests.server.app import TOKEN

from crucible import SyncMLPlatform
from crucible.core.compute.resources import Capacity, GiB


@pytest.fixture
def backends() -> tuple[FakeBackend, ...]:
    """One that bills, and a simulated one with larger machines."""
    far = FakeCloud("far", capabilities=replace(FakeCloud.capabilities, simulated=False))
    return far, FakeCloud("play", capacity_override=Capacity(cpus=64, memory_bytes=64 * GiB))


@pytest.fixture
def blocking(real: RealServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SyncMLPlatform]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setattr("crucible.client.sdk.blocking.job.REFRESH_SECONDS", 3600)
    with SyncMLPlatform(real.url, token=TOKEN) as platform:
        yield platform
