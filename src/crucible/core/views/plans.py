"""Where a job would run, and for how much."""

from pydantic import Field

from crucible.core.resources import Resources
from crucible.core.views.base import View, sometimes
from crucible.core.views.places import OfferView


class PlannedView(OfferView):
    """An offer for one job. `most_micros`: what it costs if the machine lives until its hard end."""

    named: bool = sometimes(True)
    most_micros: int | None = None
    call: dict[str, object] | None = sometimes(None)
    ends_at: str | None = sometimes(None)


class PlanView(View):
    """`chosen` is None where the job would wait; `rejected` have the reason in `why`."""

    need: Resources = Field(default_factory=Resources)
    places: tuple[str, ...] = ()
    chosen: PlannedView | None = None
    offers: tuple[PlannedView, ...] = ()
    rejected: tuple[OfferView, ...] = ()
