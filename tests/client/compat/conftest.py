from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.client.real_server import RealServer
from tests.control.clouds import FakeCloud
from tests.control.fakes import FakeBackend
from tests.server.app import TOKEN

from crucible import MLPlatform, SyncMLPlatform
from crucible.backends.base import Capabilities
from crucible.core.compute.offers import Market, Need, Offer
from crucible.core.compute.resources import Capacity, GiB

BARE = Capacity(cpus=2, memory_bytes=8 * GiB)
CARD = Capacity(cpus=4, memory_bytes=16 * GiB, gpus=(0,), gpu_memory_bytes=16 * GiB, gpu_name="T4")
PRICES = {("g4dn", Market.ON_DEMAND): 500_000, ("g4dn", Market.SPOT): 200_000, ("g5", Market.ON_DEMAND): 900_000}


@dataclass
class FakeAws(FakeCloud):
    """Two types with a GPU, one of them spot too. The markets of `sold_out` have none just now."""

    name: str = "aws"
    capabilities: Capabilities = replace(FakeCloud.capabilities, simulated=False)
    sold_out: set[str] = field(default_factory=set)

    def offers(self, need: Need) -> Sequence[Offer]:
        self._reach()
        return [
            Offer(
                self.name,
                "north",
                kind,
                CARD,
                rate,
                market=market,
                startup_seconds=60.0,
                why_not="sold out" if market in self.sold_out else "",
            )
            for (kind, market), rate in PRICES.items()
        ]


@pytest.fixture
def aws_backend() -> FakeAws:
    return FakeAws()


@pytest.fixture
def backends(aws_backend: FakeAws) -> tuple[FakeBackend, ...]:
    return (aws_backend,)


@pytest.fixture
def real(real: RealServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RealServer:
    """This computer, without a GPU, and one backend that bills."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    real.harness.backend.capacity = BARE
    real.run(real.harness.offers.refresh)
    return real


@pytest.fixture
def blocking(real: RealServer) -> Iterator[SyncMLPlatform]:
    with SyncMLPlatform(real.url, token=TOKEN) as platform:
        yield platform


@pytest.fixture
async def platform(real: RealServer) -> AsyncIterator[MLPlatform]:
    async with MLPlatform(real.url, token=TOKEN) as platform:
        yield platform
