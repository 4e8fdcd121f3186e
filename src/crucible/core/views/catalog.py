"""The price catalog."""

from typing import Self

from pydantic import Field

from crucible.core.compute.gpus import Gpu
from crucible.core.views.base import View
from crucible.core.views.compute import OfferView


class TariffView(View):
    """Other charges and terms of a provider; None: unknown."""

    egress_micros_per_gb: int | None = None
    storage_micros_per_gb_month: int | None = None
    commitment_years: int = 0
    interruption: tuple[float, float] | None = None
    dedicated: bool | None = None
    source: str = ""


class PriceView(OfferView):
    """An offer of the catalog; `age_days` is the age of its price."""

    dated: str = ""
    age_days: int = 0
    tariff: TariffView = TariffView()


class _Aged(View):
    """Dates of the prices in use, and the number of refused prices."""

    oldest: str | None = None
    newest: str | None = None
    oldest_days: int | None = None
    refused: int = 0


class PricePage(_Aged):
    items: tuple[PriceView, ...] = ()
    next: str | None = None
    total: int = 0


class GpuView(View):
    name: str
    vendor: str = ""
    memory_bytes: int = 0
    bandwidth_bytes_per_second: int = 0
    flops: dict[str, int] = Field(default_factory=dict)
    capability: str | None = None
    nvlink: bool = False
    groups: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    source: str = ""

    @classmethod
    def from_gpu(cls, gpu: Gpu) -> Self:
        return cls(
            name=gpu.name,
            vendor=gpu.vendor,
            memory_bytes=gpu.memory_bytes,
            bandwidth_bytes_per_second=gpu.bandwidth,
            flops={dtype.value: rate for dtype, rate in gpu.flops.items()},
            capability=None if gpu.capability is None else ".".join(map(str, gpu.capability)),
            nvlink=gpu.nvlink,
            groups=gpu.groups,
            aliases=gpu.aliases,
            source=gpu.source,
        )


class GpuPage(View):
    items: tuple[GpuView, ...] = ()


class TypeView(_Aged):
    """One instance type: its GPU, and its offers everywhere."""

    instance_type: str
    gpu: GpuView | None = None
    items: tuple[PriceView, ...] = ()


class PriceFindingView(View):
    """A problem of a row or a price; one that is not `refused` is reported and offered nevertheless."""

    rule: str
    refused: bool = True
    row: str = ""
    price: str | None = None
    what: str = ""
    fix: str = ""
    origin: str | None = None


class PriceAuditView(_Aged):
    day: str = ""
    rows: int = 0
    offers: int = 0
    warnings: int = 0
    items: tuple[PriceFindingView, ...] = ()


class DifferenceView(View):
    row: str
    market: str
    ours_micros: int
    theirs_micros: int
    percent: float


class PriceComparisonView(View):
    """Our prices compared with another table; long lists are cut to fifty."""

    provider: str
    ours: int = 0
    theirs: int = 0
    matched: int = 0
    matched_share: float = 0.0
    within: dict[str, int] = Field(default_factory=dict)
    spot_matched: int = 0
    spot_within: dict[str, int] = Field(default_factory=dict)
    over_percent: float = 0.0
    differences: tuple[DifferenceView, ...] = ()
    differences_count: int = 0
    missing_here: tuple[str, ...] = ()
    missing_here_count: int = 0
    missing_there: tuple[str, ...] = ()
    missing_there_count: int = 0
    unknown_types: int = 0
    unreadable: int = 0


class RefreshView(View):
    """The result of a refresh: `changed` prices differ from before; `items` could not be used."""

    provider: str
    rows: int = 0
    prices: int = 0
    changed: int = 0
    regions: tuple[str, ...] = ()
    refused: int = 0
    items: tuple[PriceFindingView, ...] = ()
    notes: tuple[str, ...] = ()
