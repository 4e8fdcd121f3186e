"""`crucible machines`: what bills or holds slots for us; ended by hand, and looked for where it should not be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from crucible.cli.options.arguments import Yes
from crucible.cli.output.format import ago_words, dollars
from crucible.cli.output.output import Listing
from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.client.sdk.job_lookup import PAGE
from crucible.core.views.machines import MachineView, OrphanView

_ENDING = 3
"""Characters of an id that are enough to name it by."""


def machines(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also those that are gone.")] = False,
) -> None:
    """List machines in use."""
    session = Session.of(ctx)
    with session.api() as api:
        found = [machine for machine in api.compute.machines(all=everything) if everything or not machine.gone]
    heads = ("MACHINE", "BACKEND", "STATE", "TYPE", "REGION", "MARKET", "FOR", "PRICE", "COST", "AGE")
    session.out.listing(found, Listing(heads, _row, lambda machine: machine.id, "No machine is in use."))


def terminate(
    ctx: typer.Context,
    refs: Annotated[
        list[str],
        typer.Argument(metavar="ID…", help="Ids, short ids or endings of machines; provider's ids of orphans."),
    ],
    yes: Yes = False,
) -> int:
    """End machines, whatever runs there. Says what that is and asks, unless --yes."""
    session = Session.of(ctx)
    with session.api() as api:
        found = _meant(api, refs)
        told = "\n".join(_loss(ref, known, _jobs_on(api, known)) for ref, known in found.items())
        count = f"{len(found)} machines" if len(found) > 1 else next(iter(found))
        if not session.confirm(f"Terminate {count}?", yes=yes, why=told):
            return 1
        for ref in found:
            ended = api.compute.terminate(ref)
            if session.out.as_json:
                session.out.json(ended.as_json())
            else:
                gone = isinstance(ended, MachineView) and ended.gone
                session.out.say(f"{ended.display_name or ref} {'is gone' if gone else 'is being ended'}.")
    return 0


def orphans(ctx: typer.Context) -> None:
    """List machines that carry our tag at our places and should not be there. Ends nothing."""
    session = Session.of(ctx)
    with session.api() as api:
        found = api.compute.orphans()
    none = "There are no orphans: every machine with our tag is one that we know and want."
    heads = ("NATIVE ID", "BACKEND", "REGION", "MACHINE", "WHY")
    session.out.listing(found, Listing(heads, _orphan, lambda orphan: orphan.native_id, none))
    if found:
        session.out.say("They are not ended by themselves. End one: crucible machines terminate NATIVE-ID")


def _row(machine: MachineView) -> tuple[str, ...]:
    price = f"{dollars(machine.rate_micros_per_hour)}/h" if machine.rate_micros_per_hour else "free"
    cost = dollars(machine.cost_micros) if machine.cost_micros or machine.rate_micros_per_hour else "free"
    return (
        machine.display_name,
        f"{machine.backend or ''}{' (simulated)' if machine.simulated else ''}",
        f"{machine.state}{', billing' if machine.bills else ''}",
        machine.instance_type or "",
        machine.region or "",
        machine.market or "",
        machine.owner or "",
        price,
        cost,
        ago_words(machine.created_at),
    )


def _orphan(item: OrphanView) -> tuple[str, ...]:
    return item.native_id, item.backend, item.region or "", item.machine or "", item.why


Known = MachineView | OrphanView | None


def _meant(api: Api, refs: Sequence[str]) -> dict[str, Known]:
    """What each word means, by the id to send; a word that means nothing here is left to the server."""
    known, lost = api.compute.machines(), None
    found: dict[str, Known] = {}
    for ref in refs:
        fits = [machine for machine in known if _fits(machine, ref)]
        if len(fits) == 1:
            found[fits[0].id] = fits[0]
            continue
        lost = api.compute.orphans() if lost is None and not fits else lost
        found[ref] = next((item for item in lost or () if item.native_id == ref), None)
    return found


def _fits(machine: MachineView, ref: str) -> bool:
    return ref in (machine.id, machine.short, machine.native_id) or (len(ref) >= _ENDING and machine.id.endswith(ref))


def _jobs_on(api: Api, known: Known) -> tuple[str, ...]:
    if not isinstance(known, MachineView):
        return ()
    return tuple(job.display_name for job in api.jobs(active=True, limit=PAGE).items if job.machine == known.id)


def _loss(ref: str, known: Known, jobs: Sequence[str]) -> str:
    """What ends with this machine."""
    if known is None:
        return f"{ref} is no machine that is known here."
    if isinstance(known, OrphanView):
        place = " in ".join(part for part in (known.backend, known.region) if part)
        return f"{ref} ({place}) is an orphan: {known.why}."
    place = " ".join(part for part in (known.backend, known.instance_type, known.region) if part)
    runs = f"{', '.join(jobs)} run{'s' if len(jobs) == 1 else ''} there" if jobs else "no job runs there"
    return f"{known.display_name} ({place}, {known.state}): {runs}."
