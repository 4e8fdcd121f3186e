"""The second document's router: code in, backends out, best first."""

from __future__ import annotations

from collections.abc import Mapping

from crucible.client.compat.types import (
    AvailabilityStatus,
    BackendRecommendation,
    CostEstimate,
    UserPreferences,
    WorkloadCharacteristics,
)
from crucible.client.sdk.platform import MLPlatform
from crucible.core.compute.offers import Availability
from crucible.core.errors import BadInput
from crucible.core.views.plans import PlannedView
from crucible.core.views.profiles import ProfileView


class WorkloadRouter:
    def __init__(self, platform: MLPlatform | None = None) -> None:
        self._platform = platform or MLPlatform()

    async def recommend_backend(
        self, code: str, user_preferences: UserPreferences | Mapping[str, object] | None = None
    ) -> list[BackendRecommendation]:
        """Return the best offer of each backend, best first; unconnected backends say so in `cons`."""
        plan = await self._platform.recommend(code=code, preferences=user_preferences)
        best: dict[str, PlannedView] = {}
        for offer in plan.offers:
            best.setdefault(offer.backend, offer)
        return [_recommendation(offer) for offer in best.values()]

    async def analyze_workload(self, code: str) -> WorkloadCharacteristics:
        """Return what static analysis finds. Raises BadInput if the run time cannot be determined."""
        plan = await self._platform.recommend(code=code)
        profile = plan.profile or ProfileView()
        if plan.hours is None:
            question = profile.unknown.get("runtime_hours", "How long does it run?")
            raise BadInput(
                "The run time cannot be determined from the code.", fix=f"{question} Set it in Requirements."
            )
        return WorkloadCharacteristics(
            duration_hours=plan.hours,
            gpu_memory_gb=profile.gpu_memory_gb or 0,
            interruptible=plan.interruptible,
            needs_persistent_storage=bool(profile.checkpointing),
            dataset_size_gb=(profile.dataset and profile.dataset.gb) or 0,
            checkpoint_frequency=_minutes_between(profile, plan.hours),
        )


def _minutes_between(profile: ProfileView, hours: float) -> float | None:
    """Return the length of an epoch, for a program that saves checkpoints and has a known number of epochs."""
    return round(hours * 60 / profile.epochs, 2) if profile.checkpointing and profile.epochs else None


def _recommendation(offer: PlannedView) -> BackendRecommendation:
    hourly = offer.rate_micros_per_hour / 1e6
    total = hourly if offer.total_micros is None else offer.total_micros / 1e6
    why = (offer.why,) if offer.why else ()
    return BackendRecommendation(
        backend=offer.backend,
        score=offer.score,
        cost_estimate=CostEstimate(hourly, total, offer.confidence),
        availability=AvailabilityStatus(
            Availability(offer.availability) if offer.runnable else Availability.LIMITED,
            offer.wait_seconds + offer.startup_seconds if offer.runnable else None,
        ),
        pros=offer.pros,
        cons=(*why, *offer.cons),
    )
