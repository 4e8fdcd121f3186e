"""What is wished of the place that runs a job, and whether its owner agrees to what that costs."""

from __future__ import annotations

from crucible.cli.options import Options
from crucible.cli.plan import SHOWN, choices, cost_of, first_lines
from crucible.cli.session import Session
from crucible.cli.words import dollars
from crucible.client.placeviews import PlannedView, PlanView
from crucible.client.placing import read_names
from crucible.client.planning import Aims
from crucible.core.budget import RAISE_IT
from crucible.core.errors import BadInput, NoCapacity, RefusedByPolicy, UnknownName
from crucible.core.planrequest import Objective
from crucible.core.resources import parse_duration


def make_aims(options: Options) -> Aims:
    return Aims(
        optimize=_objective(options.optimize),
        hours=options.hours,
        deadline_hours=_deadline(options.deadline),
        allowed_backends=read_names(options.allow),
        dedicated=options.dedicated,
        every_region=options.every_region,
        limit=options.limit or SHOWN,
    )


def agreed(session: Session, plan: PlanView, *, yes: bool) -> bool:
    """Says where it goes, and asks before more is spent than the setting `ask_above` allows.

    Raises NoCapacity, with the plan, for a job that nothing that is connected can run; RefusedByPolicy where only its
    cost speaks against that.
    """
    if plan.chosen is None and not plan.waits:
        for line in choices(plan):
            session.out.say(line)
        if plan.too_dear:
            raise RefusedByPolicy(plan.why or "It may not cost so much.", fix=RAISE_IT, rejected=_reasons(plan))
        raise NoCapacity(plan.why or "No place can run it.", fix=_fix(plan), rejected=_reasons(plan))
    for line in first_lines(plan):
        session.out.say(line)
    chosen, limit = plan.chosen, session.settings.ask_above.value
    if chosen is None or spent(chosen) <= limit * 1e6:
        return True
    why = f"It may cost {dollars(spent(chosen))} at {chosen.backend}, more than ${limit:g}: the setting ask_above."
    return session.confirm(f"Run it for {cost_of(chosen)}?", yes=yes, why=why)


def spent(offer: PlannedView) -> int:
    """Micro-dollars: what all of it costs, or where nobody knows how long it takes what it costs at most.

    Play money counts where it is known how much.
    """
    if offer.total_micros is not None:
        return offer.total_micros
    return 0 if offer.simulated else offer.most_micros or offer.rate_micros_per_hour


def _fix(plan: PlanView) -> str:
    best = next((offer for offer in plan.offers if offer.why), None)
    if best is not None:
        return f"{best.why}. Or name a place all the same: --backend local."
    return "Ask for less (--gpu-memory, --gpus, --tier, --max-cost, --deadline), or connect a larger place."


def _reasons(plan: PlanView) -> list[dict[str, str]]:
    return [{"backend": offer.backend, "why": offer.why or ""} for offer in plan.rejected]


def _objective(text: str | None) -> Objective | None:
    if text is None:
        return None
    try:
        return Objective(text.strip().lower())
    except ValueError:
        raise UnknownName("aim", text, [aim.value for aim in Objective]) from None


def _deadline(text: str | None) -> float | None:
    try:
        return None if text is None else parse_duration(text) / 3600
    except BadInput as error:
        raise BadInput(f"--deadline: {error.what}", fix=error.fix, field="--deadline") from error
