"""Machine speeds for one program, corrected by what similar jobs took."""

from __future__ import annotations

from crucible.core.compute.offers import Offer
from crucible.core.routing.corrections import Correction, PastRuns, Similarity
from crucible.core.routing.machine_speed import SpeedModel
from crucible.core.routing.plan import RankedOffer
from crucible.core.routing.profile import GpuNeed
from crucible.core.routing.roofline import Load
from crucible.core.routing.workload import ComputeTime, Workload

UNNAMED = "unnamed"
"""The name of a GPU whose type is unknown."""


class CorrectedSpeeds:
    """A SpeedModel in which each GPU type, and machines without a GPU, are corrected by past runs.

    The time on the reference GPU of a program is corrected by its own factor (`correction_for(compute)`): together they
    make the time on any machine the model's, times the factor of that machine.
    """

    def __init__(self, known: SpeedModel, past_runs: PastRuns, framework: str, script: str) -> None:
        self._known = known
        self._past_runs = past_runs
        self._like = Similarity(framework=framework, script=script)
        self._corrections: dict[str, Correction] = {}

    def correction_on(self, gpu: str) -> Correction:
        """Return the correction on a GPU type; `gpu` is empty for a machine whose CPUs do the work."""
        found = self._corrections.get(gpu)
        if found is None:
            like = Similarity(self._like.framework, gpu, self._like.script)
            found = self._corrections[gpu] = self._past_runs.correction(like)
        return found

    def correction_for(self, compute: ComputeTime | None) -> Correction:
        return self.correction_on(compute.gpu if compute else "")

    def speed(self, gpu: str, precision: str) -> float | None:
        speed = self._known.speed(gpu, precision)
        return None if speed is None else speed / self.correction_on(gpu).factor

    def step(self, gpu: str, precision: str, load: Load) -> float | None:
        seconds = self._known.step(gpu, precision, load)
        return None if seconds is None else seconds * self.correction_on(gpu).factor

    def cpu_speed(self, cpus: float) -> float:
        return self._known.cpu_speed(cpus) / self.correction_on("").factor

    def cpu_step(self, cpus: float, load: Load) -> float:
        return self._known.cpu_step(cpus, load) * self.correction_on("").factor

    def interruptions(self, offer: Offer) -> float:
        return self._known.interruptions(offer)

    def with_confidence(self, ranked: RankedOffer) -> RankedOffer:
        """Return the offer with the confidence that past runs of the program on its GPU give, if enough ran there."""
        confidence = self.correction_on(gpu_used(ranked.work, ranked.offer)).confidence
        if confidence is None or ranked.estimate.seconds is None:
            return ranked
        return ranked._replace(estimate=ranked.estimate._replace(confidence=confidence))


def gpu_used(work: Workload, offer: Offer) -> str:
    """Return the type of GPU that would do the work at the offer; empty if the CPUs do it."""
    has = offer.capacity
    return "" if work.gpu is GpuNeed.NONE or not has.gpus else has.gpu_name or UNNAMED
