"""Prices, stock and quotas: what an item costs now, and whether it can be rented."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from . import catalogue
from .catalogue import TYPES, ZONES, Item, Market
from .records import Instance
from .store import Store

_STEP_PERCENT = 8
_REVERSION = 0.1
"""Share of the distance to the list price by which each move returns to it."""


@dataclass(frozen=True)
class Refusal:
    """Why an item cannot be rented: `code` for programs, `message` for people."""

    code: str
    message: str


class MarketState:
    """Current prices, stock and quotas, kept in the store."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._seed = seed

    # Prices

    def rate(self, item: Item) -> int:
        if item.market is not Market.SPOT:
            return catalogue.list_rate(item)
        held = self._store.spot_rates().get((item.zone, item.type))
        return held[0] if held else catalogue.list_rate(item)

    def rates(self) -> dict[Item, int]:
        spot = self._store.spot_rates()
        return {
            item: spot[item.zone, item.type][0]
            if item.market is Market.SPOT and (item.zone, item.type) in spot
            else catalogue.list_rate(item)
            for item in catalogue.all_items()
        }

    def move(self, step: int) -> None:
        """Move every spot price that is not fixed. The same seed and step give the same move."""
        rng = random.Random(f"{self._seed}/{step}")  # noqa: S311 - prices, not secrets
        known = self._store.spot_rates()
        moved = {}
        for item in catalogue.all_items():
            if item.market is Market.SPOT:
                push = rng.uniform(-_STEP_PERCENT, _STEP_PERCENT) / 100
                rate, held = known.get((item.zone, item.type), (catalogue.list_rate(item), False))
                moved[item.zone, item.type] = (rate if held else _moved(item, rate, push), held)
        self._store.write_spot_rates(moved)

    def hold(self, zone: str, type: str, rate: int | None) -> None:
        """Fix a spot price; None lets it move again."""
        item = Item(zone, type, Market.SPOT)
        value = (self.rate(item), False) if rate is None else (rate, True)
        self._store.write_spot_rates({(zone, type): value})

    # Stock and quotas

    def left(self, item: Item, alive: Sequence[Instance]) -> int:
        """Return how many of the item can still be rented."""
        total = self._store.stock(item)
        total = catalogue.stock(item) if total is None else total
        if item.zone in self._store.outages():
            return 0
        return max(total - sum(instance.item == item for instance in alive), 0)

    def quota(self, region: str) -> int:
        stored = self._store.quota(region)
        return catalogue.VCPU_QUOTA if stored is None else stored

    def refusal(self, item: Item, alive: Sequence[Instance]) -> Refusal | None:
        """Return why the item cannot be rented now, or None if it can."""
        region = ZONES[item.zone].region
        used = sum(instance.kind.vcpus for instance in alive if instance.region == region)
        if item.zone in self._store.outages():
            return Refusal("zone_unavailable", f"{item.zone} is out of service")
        if used + TYPES[item.type].vcpus > self.quota(region):
            return Refusal("quota_exceeded", f"{used} of {self.quota(region)} vCPUs of {region} are in use")
        if not self.left(item, alive):
            return Refusal("insufficient_capacity", f"no {item.market} {item.type} is left in {item.zone}")
        return None


def _moved(item: Item, rate: int, push: float) -> int:
    usual = catalogue.list_rate(item)
    lowest, highest = usual // 2, catalogue.list_rate(Item(item.zone, item.type, Market.ON_DEMAND))
    wanted = rate + rate * push + (usual - rate) * _REVERSION
    return min(max(round(wanted), lowest), highest)
