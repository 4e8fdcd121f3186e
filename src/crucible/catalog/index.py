"""The index: offers by GPU, size, place, market and price, cheapest first.

Every offer has a number, in the order of price. For each thing that can be asked there is a set of numbers, kept as the
bits of one integer: for a name the offers that have it, for an amount those that have at least as much. A question
is the intersection of a few such sets, whatever the catalog's size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from crucible.catalog.lists import price_lists
from crucible.catalog.rows import INTERRUPTION, PRICES, Row
from crucible.core.compute.gpus import find_gpu, find_gpus
from crucible.core.compute.offers import Market, Offer, Tariff
from crucible.core.compute.resources import Capacity
from crucible.core.errors import UnknownName

Key = tuple[int, str, str, str, str, int]
"""The order of offers: price, provider, region, instance type, market, years bound to."""


@dataclass(frozen=True)
class Need:
    """What is asked for; None or empty: anything. Amounts are the least that will do.

    `gpu`: a type, or a group of types such as `A100`. `gpus` 0 is any number; `gpu_memory_bytes` is of each GPU.
    `max_rate`: micro-dollars an hour.
    """

    gpu: str | None = None
    gpus: int = 0
    gpu_memory_bytes: int = 0
    vcpus: float = 0.0
    memory_bytes: int = 0
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    markets: tuple[Market, ...] = ()
    instance_type: str | None = None
    max_rate: int | None = None


ANYTHING = Need()


class Names:
    """For each name the offers that have it."""

    def __init__(self, values: Iterable[str]) -> None:
        sets: dict[str, int] = {}
        for number, value in enumerate(values):
            sets[value] = sets.get(value, 0) | 1 << number
        self._sets = sets

    def of(self, names: Iterable[str]) -> int:
        return reduce(or_, (self._sets.get(name, 0) for name in names), 0)

    def known(self) -> tuple[str, ...]:
        return tuple(sorted(self._sets))


class Amounts:
    """For each amount the offers that have at least as much."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = sorted(set(values))
        at = {value: index for index, value in enumerate(self._values)}
        sets = [0] * (len(self._values) + 1)
        for number, value in enumerate(values):
            sets[at[value]] |= 1 << number
        for index in reversed(range(len(self._values))):
            sets[index] |= sets[index + 1]
        self._sets = sets

    def from_(self, least: float) -> int:
        return self._sets[bisect_left(self._values, least)]


class Catalog:
    """Every offer there is; immutable."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._offers = tuple(sorted(_offers(rows), key=order))
        self._keys = [order(offer) for offer in self._offers]
        self._rates = [offer.rate for offer in self._offers]
        self._all = (1 << len(self._offers)) - 1
        self._gpu = Names(offer.capacity.gpu_name for offer in self._offers)
        self._provider = Names(offer.backend for offer in self._offers)
        self._region = Names(offer.region for offer in self._offers)
        self._market = Names(offer.market.value for offer in self._offers)
        self._type = Names(offer.instance_type for offer in self._offers)
        self._gpus = self._amounts(lambda offer: len(offer.capacity.gpus))
        self._gpu_memory = self._amounts(lambda offer: offer.capacity.gpu_memory_bytes)
        self._vcpus = self._amounts(lambda offer: offer.capacity.cpus)
        self._memory = self._amounts(lambda offer: offer.capacity.memory_bytes)

    def __len__(self) -> int:
        return len(self._offers)

    def offers(self, need: Need = ANYTHING, *, after: Key | None = None, limit: int | None = None) -> list[Offer]:
        """Those that fit, cheapest first; `after`: only those behind this one in order; `limit`: at most so many.

        Raises UnknownName for a GPU, provider, region or type that nobody offers, with the nearest.
        """
        found = self._fitting(need)
        if after is not None:
            first = bisect_right(self._keys, after)
            found = found >> first << first
        return [self._offers[number] for number in _numbers(found, limit)]

    def count(self, need: Need = ANYTHING) -> int:
        return self._fitting(need).bit_count()

    def providers(self) -> tuple[str, ...]:
        return self._provider.known()

    def regions(self) -> tuple[str, ...]:
        return self._region.known()

    def instance_types(self) -> tuple[str, ...]:
        return self._type.known()

    def _amounts(self, of: Callable[[Offer], float]) -> Amounts:
        return Amounts([of(offer) for offer in self._offers])

    def _fitting(self, need: Need) -> int:
        found = self._named(need)
        if need.gpus:
            found &= self._gpus.from_(need.gpus)
        if need.gpu_memory_bytes:
            found &= self._gpu_memory.from_(need.gpu_memory_bytes)
        if need.vcpus:
            found &= self._vcpus.from_(need.vcpus)
        if need.memory_bytes:
            found &= self._memory.from_(need.memory_bytes)
        if need.max_rate is not None:
            found &= (1 << bisect_right(self._rates, need.max_rate)) - 1
        return found

    def _named(self, need: Need) -> int:
        found = self._all
        if need.gpu is not None:
            found &= self._gpu.of(one.name for one in find_gpus(need.gpu))
        if need.providers:
            found &= self._provider.of(_known("provider", need.providers, self.providers()))
        if need.regions:
            found &= self._region.of(_known("region", need.regions, self.regions()))
        if need.markets:
            found &= self._market.of(market.value for market in need.markets)
        if need.instance_type is not None:
            found &= self._type.of(_known("instance type", (need.instance_type,), self.instance_types()))
        return found


def order(offer: Offer) -> Key:
    years = offer.tariff.commitment_years
    return offer.rate, offer.backend, offer.region, offer.instance_type, offer.market.value, years


def _known(kind: str, asked: Iterable[str], known: Sequence[str]) -> Iterator[str]:
    for name in asked:
        if name not in known:
            raise UnknownName(kind, name, known, fix="`crucible catalog list` shows what there is.")
        yield name


def _numbers(found: int, limit: int | None) -> Iterator[int]:
    """The numbers of the bits that are set, lowest first."""
    left = found.bit_count() if limit is None else min(limit, found.bit_count())
    for _ in range(left):
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest


def _offers(rows: Iterable[Row]) -> Iterator[Offer]:
    """An offer for each price. What several have in common is made once."""
    sizes: dict[tuple[object, ...], Capacity] = {}
    tariffs: dict[tuple[str, str, int], Tariff] = {}
    for row in rows:
        size = (row.vcpus, row.memory_bytes, row.gpu, row.gpus)
        capacity = sizes.get(size) or sizes.setdefault(size, _capacity(row))
        for column, price in row.prices():
            market, years = PRICES[column]
            terms = (row.price_list, row.interruption if market is Market.SPOT else "", years)
            tariff = tariffs.get(terms) or tariffs.setdefault(terms, _tariff(*terms))
            yield _offer(row, capacity, price, market, tariff)


def _offer(row: Row, capacity: Capacity, price: int, market: Market, tariff: Tariff) -> Offer:
    page = price_lists()[row.price_list]
    return Offer(
        backend=row.provider,
        region=row.region,
        instance_type=row.instance_type,
        capacity=capacity,
        rate=price,
        billing=page.billing,
        market=market,
        startup_seconds=page.startup_seconds,
        dated=row.dated,
        tariff=tariff,
    )


def _capacity(row: Row) -> Capacity:
    memory = find_gpu(row.gpu).memory_bytes if row.gpu else 0
    return Capacity(
        cpus=row.vcpus,
        memory_bytes=row.memory_bytes,
        gpus=tuple(range(row.gpus)),
        gpu_memory_bytes=memory,
        gpu_name=row.gpu,
    )


def _tariff(page_name: str, interruption: str, years: int) -> Tariff:
    page = price_lists()[page_name]
    return Tariff(
        egress_per_gb=page.egress_per_gb,
        storage_per_gb_month=page.storage_per_gb_month,
        commitment_years=years,
        interruption=INTERRUPTION.get(interruption),
        dedicated=page.dedicated,
        longest_seconds=page.longest_seconds,
        source=page.source,
    )
