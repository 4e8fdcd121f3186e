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
"""A GPU of which nobody knows the type."""


class CorrectedSpeeds:
    """A SpeedModel in which each GPU, and having none, is as slow as past runs say.

    What a program takes on its GPU of reference is corrected by itself (`of(compute)`): the two together make the time
    on any machine that of the model, times the factor of that machine.
    """

    def __init__(self, known: SpeedModel, experience: PastRuns, framework: str, script: str) -> None:
        self._known = known
        self._experience = experience
        self._like = Similarity(framework=framework, script=script)
        self._corrections: dict[str, Correction] = {}

    def correction_on(self, gpu: str) -> Correction:
        """`gpu` is empty for a machine whose processors do the work."""
        found = self._corrections.get(gpu)
        if found is None:
            like = Similarity(self._like.framework, gpu, self._like.script)
            found = self._corrections[gpu] = self._experience.correction(like)
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
        """As sure as the jobs of this program make it that ran on such a GPU; as it is where they are too few."""
        confidence = self.correction_on(gpu_used(ranked.work, ranked.offer)).confidence
        if confidence is None or ranked.estimate.seconds is None:
            return ranked
        return ranked._replace(estimate=ranked.estimate._replace(confidence=confidence))


def gpu_used(work: Workload, offer: Offer) -> str:
    """The GPU that would do the work there; empty where the processors do."""
    has = offer.capacity
    return "" if work.gpu is GpuNeed.NONE or not has.gpus else has.gpu_name or UNNAMED
