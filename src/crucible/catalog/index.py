"""The index: finds offers by GPU, size, region, market and price, cheapest first.

Offers are numbered in the order of their price. For every name and every amount the index holds a set of these numbers,
as the bits of one integer: the offers with that name, or with at least that amount. A query intersects a few such sets.
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
"""Sort key of an offer: price, provider, region, instance type, market, years of commitment."""


@dataclass(frozen=True)
class Need:
    """A query for offers. None, empty and 0 mean anything; amounts are minima.

    `gpu`: a type, or a group of types such as `A100`. `gpu_memory_bytes`: of each GPU. `max_rate`: micro-dollars an
    hour.
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


class NameSets:
    """Maps each name to the set of offers that have it."""

    def __init__(self, values: Iterable[str]) -> None:
        sets: dict[str, int] = {}
        for number, value in enumerate(values):
            sets[value] = sets.get(value, 0) | 1 << number
        self._sets = sets

    def any_of(self, names: Iterable[str]) -> int:
        return reduce(or_, (self._sets.get(name, 0) for name in names), 0)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._sets))


class AmountSets:
    """Maps each amount to the set of offers that have at least as much."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = sorted(set(values))
        index_of = {value: index for index, value in enumerate(self._values)}
        sets = [0] * (len(self._values) + 1)
        for number, value in enumerate(values):
            sets[index_of[value]] |= 1 << number
        for index in reversed(range(len(self._values))):
            sets[index] |= sets[index + 1]
        self._sets = sets

    def at_least(self, minimum: float) -> int:
        return self._sets[bisect_left(self._values, minimum)]


class Catalog:
    """All offers, indexed. Immutable."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._offers = tuple(sorted(_offers(rows), key=sort_key))
        self._keys = [sort_key(offer) for offer in self._offers]
        self._rates = [offer.rate for offer in self._offers]
        self._all = (1 << len(self._offers)) - 1
        self._gpu = NameSets(offer.capacity.gpu_name for offer in self._offers)
        self._provider = NameSets(offer.backend for offer in self._offers)
        self._region = NameSets(offer.region for offer in self._offers)
        self._market = NameSets(offer.market.value for offer in self._offers)
        self._type = NameSets(offer.instance_type for offer in self._offers)
        self._gpus = self._amounts(lambda offer: len(offer.capacity.gpus))
        self._gpu_memory = self._amounts(lambda offer: offer.capacity.gpu_memory_bytes)
        self._vcpus = self._amounts(lambda offer: offer.capacity.cpus)
        self._memory = self._amounts(lambda offer: offer.capacity.memory_bytes)

    def __len__(self) -> int:
        return len(self._offers)

    def offers(self, need: Need = ANYTHING, *, after: Key | None = None, limit: int | None = None) -> list[Offer]:
        """Return the offers that match, cheapest first: those behind `after`, and at most `limit`.

        Raises UnknownName for a GPU, provider, region or instance type without offers; it suggests the nearest name.
        """
        matching = self._matching(need)
        if after is not None:
            first = bisect_right(self._keys, after)
            matching = matching >> first << first  # clears the bits up to `after`
        return [self._offers[number] for number in _numbers(matching, limit)]

    def count(self, need: Need = ANYTHING) -> int:
        return self._matching(need).bit_count()

    def providers(self) -> tuple[str, ...]:
        return self._provider.names()

    def regions(self) -> tuple[str, ...]:
        return self._region.names()

    def instance_types(self) -> tuple[str, ...]:
        return self._type.names()

    def _amounts(self, amount: Callable[[Offer], float]) -> AmountSets:
        return AmountSets([amount(offer) for offer in self._offers])

    def _matching(self, need: Need) -> int:
        bits = self._matching_names(need)
        if need.gpus:
            bits &= self._gpus.at_least(need.gpus)
        if need.gpu_memory_bytes:
            bits &= self._gpu_memory.at_least(need.gpu_memory_bytes)
        if need.vcpus:
            bits &= self._vcpus.at_least(need.vcpus)
        if need.memory_bytes:
            bits &= self._memory.at_least(need.memory_bytes)
        if need.max_rate is not None:
            # Offers are numbered by price, so the affordable ones are the lowest bits.
            bits &= (1 << bisect_right(self._rates, need.max_rate)) - 1
        return bits

    def _matching_names(self, need: Need) -> int:
        bits = self._all
        if need.gpu is not None:
            bits &= self._gpu.any_of(one.name for one in find_gpus(need.gpu))
        if need.providers:
            bits &= self._provider.any_of(_known("provider", need.providers, self.providers()))
        if need.regions:
            bits &= self._region.any_of(_known("region", need.regions, self.regions()))
        if need.markets:
            bits &= self._market.any_of(market.value for market in need.markets)
        if need.instance_type is not None:
            bits &= self._type.any_of(_known("instance type", (need.instance_type,), self.instance_types()))
        return bits


def sort_key(offer: Offer) -> Key:
    years = offer.tariff.commitment_years
    return offer.rate, offer.backend, offer.region, offer.instance_type, offer.market.value, years


def _known(kind: str, names: Iterable[str], known: Sequence[str]) -> Iterator[str]:
    """Yield the names. Raises UnknownName for one that is not known."""
    for name in names:
        if name not in known:
            raise UnknownName(kind, name, known, fix="`crucible catalog list` shows the names.")
        yield name


def _numbers(bits: int, limit: int | None) -> Iterator[int]:
    """Yield the numbers of the bits that are set, lowest first."""
    count = bits.bit_count() if limit is None else min(limit, bits.bit_count())
    for _ in range(count):
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _offers(rows: Iterable[Row]) -> Iterator[Offer]:
    """Yield an offer for each price. Offers share equal capacities and tariffs."""
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
