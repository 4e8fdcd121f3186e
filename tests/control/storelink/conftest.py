from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.control.storelink.world import Mailroom, make_mailroom
from tests.control.world import give_back


@pytest.fixture
async def mailroom(tmp_path: Path) -> AsyncIterator[Mailroom]:
    room = await make_mailroom(tmp_path)
    yield room
    await give_back(room.rig.ports.db)
