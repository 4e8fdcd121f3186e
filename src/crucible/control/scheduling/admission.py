"""Refuse a job that none of its backends could ever run, before it is stored."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from crucible.control.scheduling.backends import ConnectedBackends
from crucible.control.scheduling.offers import OfferBook
from crucible.core.compute.budget import RAISE_IT
from crucible.core.compute.offers import Need
from crucible.core.compute.resources import Resources
from crucible.core.compute.tiers import effective_resources
from crucible.core.errors import NoCapacity, RefusedByPolicy, UnknownName
from crucible.core.job.spec import JobSpec
from crucible.core.scheduling import fit
from crucible.core.scheduling.candidates import Candidate, list_candidates
from crucible.core.scheduling.state import WaitingJob

LARGER_BACKEND = "Ask for less (--tier, --region), or connect a larger backend."
OTHER_BACKEND = "Do that, or choose another backend with --backend."
ASK_SECONDS = 3.0
"""How long a submission waits for offers that are not known yet."""


class Admission:
    def __init__(self, backends: ConnectedBackends, offers: OfferBook) -> None:
        self._backends = backends
        self._offers = offers

    async def prepare(self, specs: Sequence[JobSpec]) -> None:
        """Fetch the offers for these jobs that are not known yet."""
        wanted = {(name, _need(spec)) for spec in specs for name in spec.backends if self._backends.has(name)}
        await self._offers.fetch(wanted, ASK_SECONDS)

    def reaches_node(self, name: str, node: str) -> bool:
        """Return whether the backend offers slots of this node."""
        return node in self._offers.nodes(name)

    def check(self, spec: JobSpec) -> Resources:
        """Return the job's effective resources.

        Raises UnknownName for a backend or tier, NoCapacity if none of its backends could ever hold the job, and
        RefusedByPolicy if one could, but not for the job's max_cost_usd.
        """
        need = effective_resources(spec.tier, spec.resources)
        sized = spec.model_copy(update={"resources": need})
        rejected = [self._why_never(candidate, sized) for candidate in list_candidates(sized)]
        if all(rejected):
            reasons = [reason for each in rejected for reason in each]
            if spec.max_cost_usd is not None:
                # Raises NoCapacity if the job would not fit without the limit either.
                self.check(spec.model_copy(update={"max_cost_usd": None}))
                raise RefusedByPolicy(
                    f"No backend can run this job within its max_cost_usd: it {reasons[0]['why']}.",
                    fix=RAISE_IT,
                    rejected=reasons,
                )
            raise NoCapacity(
                f"No backend can hold this job: it {reasons[0]['why']}.",
                fix=self._fix(spec),
                rejected=reasons,
            )
        return need

    def _fix(self, spec: JobSpec) -> str:
        """Return the fix for a job that none of its backends can hold."""
        unreachable = (self._backends.rejection(name, secrets=bool(spec.secrets)) for name in spec.backends)
        fix = next((each.fix for each in unreachable if each), "")
        if not fix and any(self._backends.why_no_files(name, spec) for name in spec.backends):
            fix = OTHER_BACKEND
        return fix or LARGER_BACKEND

    def _why_never(self, candidate: Candidate, sized: JobSpec) -> list[dict[str, str]]:
        """Return why this candidate can never hold the job, one entry per offer, or an empty list if it may."""
        name = candidate.backend
        lacking = self._backends.why_no_files(name, sized)
        if lacking:
            return [{"backend": name, "why": lacking}]
        unreachable = self._backends.rejection(name, secrets=bool(sized.secrets))
        if unreachable is not None:
            return [{"backend": name, "why": f"cannot run on {name}: {unreachable.why}"}]
        offers = self._offers.get(name, _need(sized)) or ()
        reasons = [fit.why_never(sized, offer, candidate.market) for offer in offers]
        return [{"backend": name, "why": why} for why in reasons] if reasons and all(reasons) else []


def _need(spec: JobSpec) -> Need:
    """Return the job's need for offers. A tier that does not exist is refused later."""
    with contextlib.suppress(UnknownName):
        spec = spec.model_copy(update={"resources": effective_resources(spec.tier, spec.resources)})
    return WaitingJob("", 0, spec, list_candidates(spec)).need
