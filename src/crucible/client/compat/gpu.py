"""The third document's executor interface: code and requirements in, a handle out. For asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from crucible.client.compat.strategy import offers_of
from crucible.client.compat.types import (
    AvailabilityStatus,
    CostEstimate,
    ExecutionBackend,
    MLJob,
    ResourceRequirements,
    WorkloadCharacteristics,
    as_requirements,
)
from crucible.client.request.job_request import make_spec
from crucible.client.request.ranking import rank_backends
from crucible.client.request.requirements import Requirements
from crucible.client.sdk.platform import Job, MLPlatform
from crucible.core.compute.offers import Availability, Market
from crucible.core.errors import BadInput
from crucible.core.routing.profile import Confidence
from crucible.core.views.compute import OfferView

JobHandle = Job


class PipelinesComeLater(BadInput):
    """A job cannot wait for another one yet."""

    code = "pipelines_come_later"

    def __init__(self) -> None:
        super().__init__(
            "depends_on is not supported yet.",
            why="The server has no pipelines: jobs that start when others have ended.",
            fix="Wait for the first job (await handle.wait()), then submit the second without depends_on.",
            field="depends_on",
        )


class GPUExecutor:
    """An executor on one backend, given by name (`local`) or as an ExecutionBackend."""

    def __init__(self, backend: str | ExecutionBackend, platform: MLPlatform | None = None) -> None:
        known = backend if isinstance(backend, ExecutionBackend) else None
        self.backend = known.backend_name if known else str(backend)
        self._market = known.market if known else None
        self._platform = platform or MLPlatform()

    async def submit_job(
        self,
        code: str | MLJob,
        requirements: Requirements | ResourceRequirements | Mapping[str, object] | None = None,
        *,
        resume_from_checkpoint: bool = False,
        depends_on: object = None,
    ) -> JobHandle:
        """Submit code to this backend, or, with `resume_from_checkpoint`, resume a job on it.

        The job to resume is an MLJob with an id; it must have ended, and continues from its newest checkpoint.
        """
        if depends_on is not None:
            raise PipelinesComeLater
        if resume_from_checkpoint:
            return await self._resumed(code)
        text = code.code if isinstance(code, MLJob) else code
        needs = code.requirements if requirements is None and isinstance(code, MLJob) else requirements
        return await self._platform.submit(
            code=text, requirements=self._needs(as_requirements(needs)), places=[self.backend]
        )

    async def estimate_cost(self, characteristics: WorkloadCharacteristics) -> CostEstimate:
        """Return the cost of the duration on the cheapest machine of the backend that fits. Raises NoCapacity."""
        needs = self._needs(characteristics.requirements())
        fields, goal = needs.read()
        spec = make_spec({"command": ("true",), **fields})
        goal = goal.model_copy(update={"allowed_backends": (self.backend,)})
        best = rank_backends(await self._platform.backends(), spec, goal).offers[self.backend]
        assert best is not None, "only an order of backends has some without an offer"
        hourly = best.rate_micros_per_hour / 1e6
        return CostEstimate(hourly, hourly * characteristics.duration_hours, _confidence(best))

    async def check_availability(self) -> AvailabilityStatus:
        """Return whether a machine is available now, and how long it takes to start."""
        offers = offers_of(await self._platform.backends(), self.backend)
        runnable = [offer for offer in offers if offer.runnable and self._market in (None, offer.market)]
        if not runnable:
            return AvailabilityStatus(Availability.LIMITED)
        best = min(runnable, key=_readiness)
        return AvailabilityStatus(Availability(best.availability), best.wait_seconds + best.startup_seconds)

    async def _resumed(self, job: str | MLJob) -> JobHandle:
        if not isinstance(job, MLJob) or job.id is None:
            raise BadInput(
                "resume_from_checkpoint needs a job that was submitted before.",
                fix="Pass MLJob(code=..., id=handle.id).",
                field="resume_from_checkpoint",
            )
        handle = await self._platform.job(job.id)
        await handle.resume(backend=self.backend)
        return handle

    def _needs(self, needs: Requirements) -> Requirements:
        """Return the requirements with the market of the backend: spot machines, or none of them."""
        return needs if self._market is None else replace(needs, interruptible=self._market is Market.SPOT)


def _readiness(offer: OfferView) -> tuple[bool, float]:
    return offer.availability != Availability.AVAILABLE, offer.wait_seconds + offer.startup_seconds


def _confidence(offer: OfferView) -> Confidence:
    if not offer.rate_micros_per_hour:
        return Confidence.HIGH
    return Confidence.LOW if offer.market is Market.SPOT else Confidence.MEDIUM
