"""Estimate the cost and duration of a whole job at an offer, from the wait for a machine to the last byte."""

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
"""How much each further GPU adds, close to the measured scaling of data parallel training on one machine."""
BANDWIDTH = 100e6
"""Assumed bytes per second between a machine and the store."""
LONGEST = 10 * 365 * 86400.0
"""Upper limit of estimates in seconds, so that they stay finite."""


class Estimate(NamedTuple):
    """Seconds and micro-dollars. `seconds` is compute time alone; None if it is unknown, and then so is everything that
    depends on it.
    """

    wait: float
    startup: float
    transfer: float
    seconds: float | None
    lost: float | None
    """Expected time for repeating work after interruptions and for the restarts."""
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
    """Estimates of one job at many offers, computed once for all machines of the same speed."""

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
        egress = _per_gb(self._work.output_bytes, tariff.egress_per_gb or 0) if self._work.output_bytes else 0
        if seconds is None:
            return Estimate(wait, startup, transfer, None, None, None, egress, None, confidence)
        lost = _lost(self._work, offer, seconds, self._known)
        billed = startup + transfer + seconds + lost
        machine = forecast(billed, offer.rate, offer.billing)
        held = _per_gb(self._held, tariff.storage_per_gb_month or 0) if self._held else 0
        storage = math.ceil(held * billed / MONTH) if held else 0
        return Estimate(wait, startup, transfer, seconds, lost, machine, egress, storage, confidence)

    def _duration(self, offer: Offer) -> tuple[float | None, Confidence]:
        """Return the compute time at an offer, and its confidence.

        Cached by the identity of the capacity, which offers of a list share and which outlives the request; then by
        what decides the speed: the number and type of GPUs used, or else the number of CPUs.
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
    """Return the compute time in seconds at the offer (None: unknown), and its confidence."""
    compute = work.compute
    if compute is None:
        return None, Confidence.LOW
    if not compute.gpu and not isinstance(compute, CountedComputeTime):
        return compute.seconds, compute.confidence
    used = work.gpus_on(offer.capacity)
    relative = _relative_speed(compute, offer, used, known)
    if relative is None:
        return compute.seconds, Confidence.LOW
    scaling = _scaling(used or 1) / _scaling(compute.gpus) if compute.shared else 1.0
    same = offer.capacity.gpu_name == compute.gpu and used == compute.gpus
    sure = compute.confidence if same else weaker(compute.confidence, Confidence.MEDIUM)
    return min(compute.seconds / (relative * scaling), LONGEST), sure


def _relative_speed(compute: ComputeTime, offer: Offer, used: int, known: SpeedModel) -> float | None:
    """Return the speed of one GPU (or all CPUs) there, relative to the GPU that `compute` is for; None if unknown."""
    if isinstance(compute, CountedComputeTime):
        reference, there = _step(compute, known), _step_there(compute, offer, used, known)
        return reference / there if reference and there else None
    base = known.speed(compute.gpu, compute.precision)
    here = known.speed(offer.capacity.gpu_name, compute.precision) if used else known.cpu_speed(offer.capacity.cpus)
    return here / base if here and base else None


def _step(compute: CountedComputeTime, known: SpeedModel) -> float | None:
    """Return the seconds of a step on the hardware that `compute` is for."""
    if not compute.gpu:
        return known.cpu_step(CORES, compute.load)
    return known.step(compute.gpu, compute.precision, compute.load)


def _step_there(compute: CountedComputeTime, offer: Offer, used: int, known: SpeedModel) -> float | None:
    has = offer.capacity
    return known.step(has.gpu_name, compute.precision, compute.load) if used else known.cpu_step(has.cpus, compute.load)


def _scaling(gpus: int) -> float:
    return 1 + (gpus - 1) * NVLINK_SHARE


def _lost(work: Workload, offer: Offer, seconds: float, known: SpeedModel) -> float:
    """Return the expected seconds lost to interruptions: the work since the last checkpoint is repeated.

    With r interruptions a second at random and a restart of d seconds, a piece of length c is expected to take
    (1/r + d) (exp(r c) - 1). The result is that for all pieces, less the work itself.
    """
    rate = known.interruptions(offer) / 3600
    if not rate or not seconds:
        return 0.0
    piece = min(work.checkpoint_seconds or seconds, seconds)
    grown = math.expm1(min(rate * piece, 50.0))
    expected = seconds / piece * (1 / rate + offer.startup_seconds) * grown
    return min(expected - seconds, LONGEST)


def _per_gb(size: int, micros_per_gb: int) -> int:
    return -(-size * micros_per_gb // GB)
