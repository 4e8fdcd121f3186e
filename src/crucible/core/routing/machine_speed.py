"""How fast machines are relative to each other, and how often they are taken back, by data sheets."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Protocol

from crucible.core.compute import gpus
from crucible.core.compute.offers import Market, Offer
from crucible.core.errors import UnknownName
from crucible.core.routing.roofline import CORE_BANDWIDTH, CORE_FLOPS, Load, cpu_roof, gpu_roof

INTERRUPTIONS = 0.02
"""How often an hour a spot machine is taken back where its provider does not say, as assumed."""
MOST = 0.99
HOURS_A_MONTH = 730
ARITHMETIC = 0.7
"""How much of a GPU's speed is its arithmetic, the rest being its memory, for work of which nothing else is known."""


class SpeedModel(Protocol):
    """What is known of machines beyond their offers."""

    def speed(self, gpu: str, precision: str) -> float | None:
        """Of one GPU, on a scale of its own. None for a type that nobody knows."""

    def step(self, gpu: str, precision: str, load: Load) -> float | None:
        """Seconds that one GPU takes for a step of counted work. None for a type that nobody knows."""

    def cpu_speed(self, cpus: float) -> float:
        """Of so many processors, on the scale of `speed`."""

    def cpu_step(self, cpus: float, load: Load) -> float:
        """Seconds that so many processors take for a step of counted work."""

    def interruptions(self, offer: Offer) -> float:
        """How often an hour a machine is taken back there, on average."""


class DataSheetSpeeds:
    """Training is bound now by arithmetic, now by memory: a GPU is as fast as a weighted mean of both says."""

    def speed(self, gpu: str, precision: str) -> float | None:
        return _speed(gpu, precision)

    def step(self, gpu: str, precision: str, load: Load) -> float | None:
        try:
            return gpu_roof(gpus.find_gpu(gpu), precision).seconds(load)
        except UnknownName:
            return None

    def cpu_speed(self, cpus: float) -> float:
        return cpus * _mean(CORE_FLOPS, CORE_BANDWIDTH)

    def cpu_step(self, cpus: float, load: Load) -> float:
        return cpu_roof(cpus).seconds(load)

    def interruptions(self, offer: Offer) -> float:
        """A provider tells the share of machines that it took back in a month."""
        if offer.market is not Market.SPOT:
            return 0.0
        if offer.tariff.interruption is None:
            return INTERRUPTIONS
        share = min(sum(offer.tariff.interruption) / 2, MOST)
        return -math.log1p(-share) / HOURS_A_MONTH


def _mean(arithmetic: float, memory: float) -> float:
    return math.exp(ARITHMETIC * math.log(arithmetic) + (1 - ARITHMETIC) * math.log(memory))


@lru_cache(maxsize=1024)
def _speed(name: str, precision: str) -> float | None:
    try:
        found = gpus.find_gpu(name)
    except UnknownName:
        return None
    reached = gpu_roof(found, precision)
    return _mean(reached.flops, reached.bandwidth)
