"""Question: what a plan is asked, with what was read of the program, as routing takes it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crucible.core.offers import Market
from crucible.core.planask import PlanAsk
from crucible.core.profile import GpuNeed, HostMemory, Profile
from crucible.core.resources import Resources
from crucible.core.routing.experience import Correction
from crucible.core.routing.reading import UNREAD, Said, work_of
from crucible.core.routing.wishes import Wishes
from crucible.core.routing.work import OnGpus, Work
from crucible.core.tiers import effective


@dataclass(frozen=True)
class Question:
    """What is asked, with what was read: `places` are those that were named, in their order."""

    ask: PlanAsk
    need: Resources
    profile: Profile | None
    places: tuple[str, ...]

    @property
    def alike(self) -> tuple[str, str]:
        """The main framework and the script: what makes jobs alike, wherever they run."""
        program = self.ask.program
        return next(iter((self.profile or UNREAD).frameworks.value or ()), ""), program.script if program else ""

    @property
    def read(self) -> bool:
        """Whether how long it takes is read of the program: what the owner says himself is no prediction of ours."""
        return self.ask.hours is None and (self.profile or UNREAD).runtime_hours.known

    @property
    def market(self) -> Market | None:
        """What is named goes where a submission would: to what cannot be taken back, unless it is said otherwise."""
        if self.ask.market is None and self.places and not self.ask.interruptible:
            return Market.ON_DEMAND
        return self.ask.market

    @property
    def wishes(self) -> Wishes:
        ask = self.ask
        return Wishes(
            optimize=ask.optimize,
            backends=self.places or ask.allowed_backends,
            regions=ask.regions,
            gpu_types=ask.gpu_types,
            market=self.market,
            dedicated=ask.dedicated,
            max_cost=ask.max_cost_micros,
            deadline=None if ask.deadline_hours is None else ask.deadline_hours * 3600,
        )

    def work(self, learned: Correction | None = None) -> Work:
        """What it needs, as it is said and read."""
        ask = self.ask
        spot = True if ask.market is Market.SPOT and ask.interruptible is None else ask.interruptible
        on = ask.gpu_types[0] if len(ask.gpu_types) == 1 else ""
        some = bool(ask.gpu_types) and not effective(ask.tier, ask.resources).gpus
        said = Said(self.need, ask.hours, on, spot, ask.processes, some)
        return work_of(said, self.profile or UNREAD, learned)

    def yielding(self, work: Work) -> Work:
        """Whoever names places knows what runs there: what is only read of a program shuts none of them out."""
        if work.gpu is not GpuNeed.NONE and not self.need.gpus:
            work = replace(work, need=self.need, gpu=GpuNeed.OPTIONAL, on_gpus=OnGpus())
        return replace(work, model_bytes=0, host=HostMemory())
