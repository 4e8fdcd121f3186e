"""Relative speeds of machines from data sheets, and how often spot machines are reclaimed."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Protocol

from crucible.core.compute import gpus
from crucible.core.compute.offers import Market, Offer
from crucible.core.errors import UnknownName
from crucible.core.routing.roofline import CORE_BANDWIDTH, CORE_FLOPS, Load, cpu_roof, gpu_roof

INTERRUPTIONS = 0.02
"""Assumed reclaims per hour of a spot machine whose provider publishes no rate."""
MAX_SHARE = 0.99
HOURS_A_MONTH = 730
ARITHMETIC = 0.7
"""The share of arithmetic in the speed of a GPU (the rest is memory bandwidth) for work that was not counted."""


class SpeedModel(Protocol):
    """Relative speeds of GPUs and CPUs, and the interruption rates of offers."""

    def speed(self, gpu: str, precision: str) -> float | None:
        """Return the speed of one GPU on a scale of its own; None for an unknown type."""

    def step(self, gpu: str, precision: str, load: Load) -> float | None:
        """Return the seconds that one GPU takes for a step of counted work; None for an unknown type."""

    def cpu_speed(self, cpus: float) -> float:
        """Return the speed of a number of CPUs, on the scale of `speed`."""

    def cpu_step(self, cpus: float, load: Load) -> float:
        """Return the seconds that a number of CPUs takes for a step of counted work."""

    def interruptions(self, offer: Offer) -> float:
        """Return the average number of interruptions per hour at an offer."""


class DataSheetSpeeds:
    """Speeds from data sheets. Training is bound by arithmetic and by memory: a weighted mean of both counts."""

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
        """Return interruptions per hour, from the monthly share of reclaimed machines that the provider publishes."""
        if offer.market is not Market.SPOT:
            return 0.0
        if offer.tariff.interruption is None:
            return INTERRUPTIONS
        share = min(sum(offer.tariff.interruption) / 2, MAX_SHARE)
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
