"""Hash passwords with the same algorithm but less work, to save time in tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from argon2 import PasswordHasher

from crucible.control.people import passwords


@pytest.fixture(scope="module", autouse=True)
def quick_passwords() -> Iterator[None]:
    """For a module that names it."""
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    passwords._dummy_hash.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_hasher", lambda: quick)
        yield
    passwords._dummy_hash.cache_clear()
