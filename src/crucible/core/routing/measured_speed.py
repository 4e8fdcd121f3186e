"""Learned: how fast machines are for one program, after what jobs like it took on each of them."""

from __future__ import annotations

from crucible.core.compute.offers import Offer
from crucible.core.routing.corrections import Correction, Experience, Like
from crucible.core.routing.machine_speed import Knowledge
from crucible.core.routing.plan import Ranked
from crucible.core.routing.profile import GpuNeed
from crucible.core.routing.roofline import Load
from crucible.core.routing.workload import Compute, Work

UNNAMED = "unnamed"
"""A GPU of which nobody knows the type."""


class Learned:
    """Knowledge in which each GPU, and having none, is as slow as experience says.

    What a program takes on its GPU of reference is corrected by itself (`of(compute)`): the two together make the time
    on any machine that of the model, times the factor of that machine.
    """

    def __init__(self, known: Knowledge, experience: Experience, framework: str, script: str) -> None:
        self._known = known
        self._experience = experience
        self._like = Like(framework=framework, script=script)
        self._corrections: dict[str, Correction] = {}

    def on(self, gpu: str) -> Correction:
        """`gpu` is empty for a machine whose processors do the work."""
        found = self._corrections.get(gpu)
        if found is None:
            like = Like(self._like.framework, gpu, self._like.script)
            found = self._corrections[gpu] = self._experience.correction(like)
        return found

    def of(self, compute: Compute | None) -> Correction:
        return self.on(compute.gpu if compute else "")

    def speed(self, gpu: str, precision: str) -> float | None:
        speed = self._known.speed(gpu, precision)
        return None if speed is None else speed / self.on(gpu).factor

    def step(self, gpu: str, precision: str, load: Load) -> float | None:
        seconds = self._known.step(gpu, precision, load)
        return None if seconds is None else seconds * self.on(gpu).factor

    def cpu_speed(self, cpus: float) -> float:
        return self._known.cpu_speed(cpus) / self.on("").factor

    def cpu_step(self, cpus: float, load: Load) -> float:
        return self._known.cpu_step(cpus, load) * self.on("").factor

    def interruptions(self, offer: Offer) -> float:
        return self._known.interruptions(offer)

    def sure(self, ranked: Ranked) -> Ranked:
        """As sure as the jobs of this program make it that ran on such a GPU; as it is where they are too few."""
        confidence = self.on(gpu_used(ranked.work, ranked.offer)).confidence
        if confidence is None or ranked.estimate.seconds is None:
            return ranked
        return ranked._replace(estimate=ranked.estimate._replace(confidence=confidence))


def gpu_used(work: Work, offer: Offer) -> str:
    """The GPU that would do the work there; empty where the processors do."""
    has = offer.capacity
    return "" if work.gpu is GpuNeed.NONE or not has.gpus else has.gpu_name or UNNAMED
