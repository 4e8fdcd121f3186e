from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.control.harness import give_back
from tests.control.storelink.harness import MailboxHarness, make_mailbox_harness


@pytest.fixture
async def mailbox_harness(tmp_path: Path) -> AsyncIterator[MailboxHarness]:
    room = await make_mailbox_harness(tmp_path)
    yield room
    await give_back(room.harness.ports.db)
