"""Knowledge: how fast machines are beside each other, and how often they are taken back; as data sheets say it."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Protocol

from crucible.core import gpus
from crucible.core.errors import UnknownName
from crucible.core.gpus import Dtype
from crucible.core.offers import Market, Offer

INTERRUPTIONS = 0.02
"""How often an hour a spot machine is taken back where its provider does not say, as assumed."""
MOST = 0.99
HOURS_A_MONTH = 730
CORE_FLOPS = 50e9
CORE_BANDWIDTH = 10e9
"""Of a processor of a rented machine, roughly: for work that could use a GPU and does not."""


class Knowledge(Protocol):
    """What is known of machines beyond their offers."""

    def speed(self, gpu: str, precision: str) -> float | None:
        """Of one GPU, on a scale of its own. None for a type that nobody knows."""

    def cpu_speed(self, cpus: float) -> float:
        """Of so many processors, on the same scale."""

    def interruptions(self, offer: Offer) -> float:
        """How often an hour a machine is taken back there, on average."""


class DataSheets:
    """Training is bound now by arithmetic, now by memory: a GPU is as fast as the geometric mean of both says."""

    def speed(self, gpu: str, precision: str) -> float | None:
        return _speed(gpu, precision)

    def cpu_speed(self, cpus: float) -> float:
        return cpus * math.sqrt(CORE_FLOPS * CORE_BANDWIDTH)

    def interruptions(self, offer: Offer) -> float:
        """A provider tells the share of machines that it took back in a month."""
        if offer.market is not Market.SPOT:
            return 0.0
        if offer.tariff.interruption is None:
            return INTERRUPTIONS
        share = min(sum(offer.tariff.interruption) / 2, MOST)
        return -math.log1p(-share) / HOURS_A_MONTH


@lru_cache(maxsize=1024)
def _speed(name: str, precision: str) -> float | None:
    """A format that a GPU has no fast way for is computed as 32 bits."""
    try:
        found = gpus.gpu(name)
    except UnknownName:
        return None
    dtype = next((dtype for dtype in found.flops if dtype.value == precision), Dtype.FP32)
    return math.sqrt(found.flops[dtype] * found.bandwidth)
