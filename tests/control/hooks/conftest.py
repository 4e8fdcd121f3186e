from __future__ import annotations

import pytest
from tests.authorisation.town import Town, found_town
from tests.control.conftest import rig
from tests.control.fakes import FakePost
from tests.control.hooks.wired import Wired
from tests.control.world import Rig

__all__ = ["rig"]


@pytest.fixture
async def town(rig: Rig) -> Town:
    """A real control plane with two projects and people in them."""
    return await found_town(rig)


@pytest.fixture
def wired(rig: Rig) -> Wired:
    """A rig, its way out, and hooks on it."""
    assert isinstance(rig.deployment.post, FakePost)
    return Wired(rig, rig.deployment.post)
