"""Elsewhere: what providers that are not connected offer, each with what connects it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from crucible.catalog import Need, Stock
from crucible.control.connecting import why_unconnected
from crucible.control.places import Places
from crucible.core.offers import Offer


@dataclass(frozen=True)
class Foreign:
    """Offers that nothing can be run at until their provider is connected, and the prices they are from."""

    offers: tuple[Offer, ...]
    stock: Stock


class Elsewhere:
    def __init__(self, places: Places) -> None:
        self._places = places
        self._last: Foreign | None = None

    def of(self, stock: Stock) -> Foreign:
        """The same object as long as prices and connections are the same."""
        if self._last is None or self._last.stock is not stock:
            self._last = Foreign(tuple(self._offers(stock)), stock)
        return self._last

    def why_not(self, provider: str) -> str:
        """Why nothing of this provider can run a job here, with what changes that; empty when it can."""
        return "" if self._places.has(provider) else why_unconnected(provider, self._places.names())

    def _offers(self, stock: Stock) -> Iterator[Offer]:
        reasons = {provider: self.why_not(provider) for provider in stock.catalog.providers()}
        wanted = tuple(provider for provider, why in reasons.items() if why)
        if wanted:
            for offer in stock.catalog.offers(Need(providers=wanted)):
                yield replace(offer, why_not=reasons[offer.backend])
