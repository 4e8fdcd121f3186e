from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.control.fakes import FakeBackend
from tests.control.world import Rig, give_back, make_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = await make_rig(tmp_path)
    yield rig
    await give_back(rig.ports.db)


@pytest.fixture
async def two_places(tmp_path: Path) -> AsyncIterator[Rig]:
    """With a second counted place, called `ssh`."""
    rig = await make_rig(tmp_path, FakeBackend("ssh"))
    yield rig
    await give_back(rig.ports.db)
