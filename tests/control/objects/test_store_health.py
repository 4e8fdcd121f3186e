"""Whether the store can be used: checked when asked, and rarely."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.control.harness import ControlHarness

from crucible.control.objects.store_health import REMEMBERED_SECONDS, StoreHealth
from crucible.core.errors import CrucibleError
from crucible.storage import Store, StoreUnreachable


class FailingStore:
    """The real store, which can be checked with this error only."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.error: CrucibleError | None = StoreUnreachable("The store cannot be reached.")
        self.checks = 0

    def check(self) -> None:
        self.checks += 1
        if self.error is not None:
            raise self.error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def store(harness: ControlHarness) -> FailingStore:
    return FailingStore(harness.ports.store)


@pytest.fixture
def health(harness: ControlHarness, store: FailingStore) -> StoreHealth:
    return StoreHealth(replace(harness.ports, store=store))


async def test_a_store_that_fails_is_told(health: StoreHealth, store: FailingStore) -> None:
    assert await health.error() is store.error


async def test_it_is_checked_rarely_however_often_asked(
    harness: ControlHarness, health: StoreHealth, store: FailingStore
) -> None:
    await asyncio.gather(*(health.error() for _ in range(50)))
    assert store.checks == 1
    store.error = None
    assert await health.error() is not None
    harness.clock.move(REMEMBERED_SECONDS)
    assert await health.error() is None
    assert store.checks == 2


async def test_a_store_that_breaks_unexpectedly_counts_as_failing(health: StoreHealth, store: FailingStore) -> None:
    store.error = ZeroDivisionError()  # type: ignore[assignment]
    error = await health.error()
    assert error is not None
    assert error.code == "call_broke"
