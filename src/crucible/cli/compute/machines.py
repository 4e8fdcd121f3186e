"""`crucible machines`: list, terminate and find orphaned machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.cli.options.common_options import Yes
from crucible.cli.output.format import format_ago, format_dollars
from crucible.cli.output.output import ListFormat
from crucible.client.api import Api
from crucible.client.sdk.job_lookup import PAGE
from crucible.core.job.states import MachineState
from crucible.core.views.compute import MachineView, OrphanView

_ENDING = 3
"""Shortest ending of an ID that names a machine."""
_LOST = (
    "Its jobs may start again elsewhere, and run twice if it still runs. What it costs from now on is not counted. "
    "If it returns, it is terminated, with everything on it."
)


def machines(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Include machines that are gone.")] = False,
) -> None:
    """List machines in use."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        matching = [machine for machine in api.compute.machines(all=everything) if everything or not machine.gone]
    heads = ("MACHINE", "BACKEND", "STATE", "TYPE", "REGION", "MARKET", "FOR", "PRICE", "COST", "AGE")
    cli.out.print_list(matching, ListFormat(heads, _row, lambda machine: machine.id, "No machine is in use."))
    for machine in matching:
        if machine.state == MachineState.RELEASING and machine.detail:
            cli.out.say(f"{machine.display_name}: {machine.detail}")


def terminate(
    ctx: typer.Context,
    refs: Annotated[
        list[str],
        typer.Argument(metavar="ID…", help="Machine IDs, short IDs or ends of IDs; the provider's IDs for orphans."),
    ],
    lost: Annotated[
        bool,
        typer.Option("--lost", help="They are lost for good and cannot be reached: take them for gone at once."),
    ] = False,
    yes: Yes = False,
) -> int:
    """Terminate machines and everything running on them. Shows what that is and asks, unless --yes."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        machines_by_id = _find_machines(api, refs)
        losses = "\n".join(_describe_loss(ref, known, _jobs_on(api, known)) for ref, known in machines_by_id.items())
        count = f"{len(machines_by_id)} machines" if len(machines_by_id) > 1 else next(iter(machines_by_id))
        question = f"Take {count} for gone?" if lost else f"Terminate {count}?"
        if not cli.confirm(question, yes=yes, why=f"{losses}\n{_LOST}" if lost else losses):
            return 1
        for ref in machines_by_id:
            ended = api.compute.terminate(ref, lost=lost)
            if cli.out.as_json:
                cli.out.json(ended.as_json())
            else:
                is_gone = isinstance(ended, MachineView) and ended.gone
                cli.out.say(f"{ended.display_name or ref} {'is gone' if is_gone else 'is being terminated'}.")
    return 0


def orphans(ctx: typer.Context) -> None:
    """List machines tagged as ours that should not exist. Terminates nothing."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        orphaned = api.compute.orphans()
    none = "There are no orphans: every machine tagged as ours is known and in use."
    heads = ("NATIVE ID", "BACKEND", "REGION", "MACHINE", "WHY")
    cli.out.print_list(orphaned, ListFormat(heads, _orphan_row, lambda orphan: orphan.native_id, none))
    if orphaned:
        cli.out.say("Orphans are not terminated automatically. Terminate one: crucible machines terminate NATIVE-ID")


def _row(machine: MachineView) -> tuple[str, ...]:
    price = f"{format_dollars(machine.rate_micros_per_hour)}/h" if machine.rate_micros_per_hour else "free"
    cost = format_dollars(machine.cost_micros) if machine.cost_micros or machine.rate_micros_per_hour else "free"
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
        format_ago(machine.created_at),
    )


def _orphan_row(item: OrphanView) -> tuple[str, ...]:
    return item.native_id, item.backend, item.region or "", item.machine or "", item.why


Found = MachineView | OrphanView | None


def _find_machines(api: Api, refs: Sequence[str]) -> dict[str, Found]:
    """Look up machines and orphans, by the ID to send. An unknown reference is sent as it is: the server rejects it."""
    known, orphaned = api.compute.machines(), None
    by_id: dict[str, Found] = {}
    for ref in refs:
        matches = [machine for machine in known if _matches(machine, ref)]
        if len(matches) == 1:
            by_id[matches[0].id] = matches[0]
            continue
        orphaned = api.compute.orphans() if orphaned is None and not matches else orphaned
        by_id[ref] = next((item for item in orphaned or () if item.native_id == ref), None)
    return by_id


def _matches(machine: MachineView, ref: str) -> bool:
    return ref in (machine.id, machine.short, machine.native_id) or (len(ref) >= _ENDING and machine.id.endswith(ref))


def _jobs_on(api: Api, known: Found) -> tuple[str, ...]:
    if not isinstance(known, MachineView):
        return ()
    return tuple(job.display_name for job in api.jobs(active=True, limit=PAGE).items if job.machine == known.id)


def _describe_loss(ref: str, known: Found, jobs: Sequence[str]) -> str:
    """Return what is lost when this machine is terminated."""
    if known is None:
        return f"{ref} is not a known machine."
    if isinstance(known, OrphanView):
        where = " in ".join(part for part in (known.backend, known.region) if part)
        return f"{ref} ({where}) is an orphan: {known.why}."
    where = " ".join(part for part in (known.backend, known.instance_type, known.region) if part)
    runs = f"{', '.join(jobs)} run{'s' if len(jobs) == 1 else ''} on it" if jobs else "no job runs on it"
    return f"{known.display_name} ({where}, {known.state}): {runs}."
