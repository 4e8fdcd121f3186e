"""`crucible backends` and `tiers`: where jobs can run, and in which sizes."""

from __future__ import annotations

import typer

from crucible.cli.context import CommandContext
from crucible.cli.output.format import format_unconnected
from crucible.core.compute.resources import format_memory
from crucible.core.compute.tiers import TIERS
from crucible.core.views.compute import BackendView, OfferView


def backends(ctx: typer.Context) -> None:
    """List backends that can run jobs."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        page = api.compute.backends_page()
    items = page.items
    if cli.out.as_json:
        cli.out.json(page.as_json())
        return
    rows = [(_name(item), "yes" if item.connected else "no", _offers(item), item.detail or "") for item in items]
    cli.out.table(("BACKEND", "CONNECTED", "OFFERS", "DETAIL"), rows)
    for line in format_unconnected((other.name, other.why) for other in page.others):
        cli.out.say(line)


def tiers(ctx: typer.Context) -> None:
    """List tiers (named sizes). Without a tier a job gets the whole machine and no time limit."""
    cli = CommandContext.from_typer(ctx)
    views = [tier.view() for tier in TIERS.values()]
    if cli.out.as_json:
        cli.out.json({"items": [tier.as_json() for tier in views]})
        return
    rows = [
        (
            tier.id,
            f"{tier.cpu:g}",
            tier.memory,
            tier.gpu or "",
            tier.maxRuntime,
            f"${tier.costPerHour}/h",
            tier.description,
        )
        for tier in views
    ]
    cli.out.table(("TIER", "CPUS", "MEMORY", "GPU", "TIME", "LIST PRICE", "FOR"), rows)


def _name(backend: BackendView) -> str:
    return f"{backend.name} (simulated)" if backend.is_simulated else backend.name


def _offers(backend: BackendView) -> str:
    """Return the sizes of the first offers, in short."""
    return "; ".join(map(_size, backend.offers[:3]))


def _size(offer: OfferView) -> str:
    capacity = offer.capacity
    gpus = f", {len(capacity.gpus)} GPU" if capacity.gpus else ""
    return f"{capacity.cpus:g} CPUs, {format_memory(capacity.memory_bytes)}{gpus}"
