"""Estimate what a whole job would cost at an offer and how long it would take, from the wait to the last byte."""

from __future__ import annotations

import math
from typing import NamedTuple

from crucible.core.compute.offers import Offer
from crucible.core.compute.pricing import forecast
from crucible.core.routing.machine_speed import SpeedModel
from crucible.core.routing.profile import Confidence, weaker
from crucible.core.routing.roofline import CORES, CountedComputeTime
from crucible.core.routing.workload import ComputeTime, Workload

GB = 10**9
MONTH = 30 * 86400.0
NVLINK_SHARE = 0.9
"""What each further GPU adds; measured scaling of data parallel training on one machine lies about there."""
BANDWIDTH = 100e6
"""Bytes per second between a machine and the store, as assumed."""
LONGEST = 10 * 365 * 86400.0
"""What would take longer is as good as never done."""


class Estimate(NamedTuple):
    """Seconds and micro-dollars. `seconds` is pure computing, None where nobody knows; then nothing that follows from
    it is known either.
    """

    wait: float
    startup: float
    transfer: float
    seconds: float | None
    lost: float | None
    """Work done again after interruptions, and the starts in between, as expected."""
    machine: int | None
    egress: int
    storage: int | None
    confidence: Confidence

    @property
    def eta(self) -> float | None:
        if self.seconds is None or self.lost is None:
            return None
        return self.wait + self.startup + self.transfer + self.seconds + self.lost

    @property
    def total(self) -> int | None:
        if self.machine is None or self.storage is None:
            return None
        return self.machine + self.egress + self.storage


class Estimates:
    """Of one job at many offers: how fast a machine is, is worked out once for all that are alike."""

    def __init__(self, work: Workload, known: SpeedModel) -> None:
        self._work = work
        self._known = known
        self._held = work.dataset_bytes + work.output_bytes
        self._transfer = self._held / BANDWIDTH
        self._durations: dict[int, tuple[float | None, Confidence]] = {}
        self._alike: dict[tuple[int, str, float], tuple[float | None, Confidence]] = {}

    def estimate(self, offer: Offer) -> Estimate:
        wait, startup, tariff, transfer = offer.wait_seconds, offer.startup_seconds, offer.tariff, self._transfer
        seconds, confidence = self._durations.get(id(offer.capacity)) or self._duration(offer)
        egress = _of(self._work.output_bytes, tariff.egress_per_gb or 0) if self._work.output_bytes else 0
        if seconds is None:
            return Estimate(wait, startup, transfer, None, None, None, egress, None, confidence)
        lost = _lost(self._work, offer, seconds, self._known)
        billed = startup + transfer + seconds + lost
        machine = forecast(billed, offer.rate, offer.billing)
        held = _of(self._held, tariff.storage_per_gb_month or 0) if self._held else 0
        storage = math.ceil(held * billed / MONTH) if held else 0
        return Estimate(wait, startup, transfer, seconds, lost, machine, egress, storage, confidence)

    def _duration(self, offer: Offer) -> tuple[float | None, Confidence]:
        """By the identity of its size, which the offers of a list share and which outlives the question; sizes are
        alike that compute with as many GPUs of a kind, or with as many processors.
        """
        has, used = offer.capacity, self._work.gpus_on(offer.capacity)
        alike = used, has.gpu_name, 0 if used else has.cpus
        found = self._alike.get(alike)
        if found is None:
            found = self._alike[alike] = duration(self._work, offer, self._known)
        self._durations[id(has)] = found
        return found


def estimate(work: Workload, offer: Offer, known: SpeedModel) -> Estimate:
    return Estimates(work, known).estimate(offer)


def duration(work: Workload, offer: Offer, known: SpeedModel) -> tuple[float | None, Confidence]:
    """Seconds of computing there, and how sure that is."""
    compute = work.compute
    if compute is None:
        return None, Confidence.LOW
    if not compute.gpu and not isinstance(compute, CountedComputeTime):
        return compute.seconds, compute.confidence
    used = work.gpus_on(offer.capacity)
    faster = _faster(compute, offer, used, known)
    if faster is None:
        return compute.seconds, Confidence.LOW
    together = _together(used or 1) / _together(compute.gpus) if compute.shared else 1.0
    same = offer.capacity.gpu_name == compute.gpu and used == compute.gpus
    sure = compute.confidence if same else weaker(compute.confidence, Confidence.MEDIUM)
    return min(compute.seconds / (faster * together), LONGEST), sure


def _faster(compute: ComputeTime, offer: Offer, used: int, known: SpeedModel) -> float | None:
    """How many times as fast as a GPU of the type that it was told for one there is, or all processors there."""
    if isinstance(compute, CountedComputeTime):
        told, there = _step(compute, known), _step_there(compute, offer, used, known)
        return told / there if told and there else None
    base = known.speed(compute.gpu, compute.precision)
    here = known.speed(offer.capacity.gpu_name, compute.precision) if used else known.cpu_speed(offer.capacity.cpus)
    return here / base if here and base else None


def _step(compute: CountedComputeTime, known: SpeedModel) -> float | None:
    """Seconds of a step where its time was told for."""
    if not compute.gpu:
        return known.cpu_step(CORES, compute.load)
    return known.step(compute.gpu, compute.precision, compute.load)


def _step_there(compute: CountedComputeTime, offer: Offer, used: int, known: SpeedModel) -> float | None:
    has = offer.capacity
    return known.step(has.gpu_name, compute.precision, compute.load) if used else known.cpu_step(has.cpus, compute.load)


def _together(gpus: int) -> float:
    return 1 + (gpus - 1) * NVLINK_SHARE


def _lost(work: Workload, offer: Offer, seconds: float, known: SpeedModel) -> float:
    """With interruptions that come at random, each piece between checkpoints is done again until it gets through.

    The expected time of a piece of length c is (1/r + d) (exp(r c) - 1) for r interruptions a second and a
    restart of d seconds; all pieces together, less the work itself.
    """
    rate = known.interruptions(offer) / 3600
    if not rate or not seconds:
        return 0.0
    piece = min(work.checkpoint_seconds or seconds, seconds)
    grown = math.expm1(min(rate * piece, 50.0))
    expected = seconds / piece * (1 / rate + offer.startup_seconds) * grown
    return min(expected - seconds, LONGEST)


def _of(size: int, micros_per_gb: int) -> int:
    return -(-size * micros_per_gb // GB)
