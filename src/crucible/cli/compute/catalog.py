"""`crucible catalog`: what can be rented and for how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated

import typer
from pydantic import ValidationError

from crucible.cli.output.format import dollars, price_words, unconnected
from crucible.cli.output.output import Listing
from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.client.api.deployment import PAGE
from crucible.core.compute.gpus import GPUS, Dtype, Gpu
from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.compute.resources import format_duration, format_memory
from crucible.core.errors import BadInput
from crucible.core.views.catalog import GpuPage, GpuView, PricePage, PriceView, TypeView

Texts = list[str] | None
HEADS = ("PROVIDER", "REGION", "TYPE", "MARKET", "GPUS", "CPUS", "MEMORY", "PRICE", "OF", "RUNNABLE")


def catalog(
    ctx: typer.Context,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="TYPE", help="A GPU type, or a group: A100.")] = None,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="At least so many GPUs.")] = 0,
    gpu_memory: Annotated[
        str | None, typer.Option("--gpu-memory", metavar="SIZE", help="At least, of each GPU: 24GB.")
    ] = None,
    cpus: Annotated[float, typer.Option("--cpus", metavar="N", help="At least so many hardware threads.")] = 0.0,
    memory: Annotated[str | None, typer.Option("--memory", metavar="SIZE", help="At least: 64GB.")] = None,
    provider: Annotated[Texts, typer.Option("--provider", metavar="NAME", help="Only of this one. Repeatable.")] = None,
    region: Annotated[Texts, typer.Option("--region", metavar="REGION", help="Only there. Repeatable.")] = None,
    market: Annotated[
        Texts, typer.Option("--market", metavar="MARKET", help="on-demand, spot or reserved. Repeatable.")
    ] = None,
    max_price: Annotated[float | None, typer.Option("--max-price", metavar="DOLLARS", help="An hour, at most.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All that fit.")] = False,
) -> None:
    """List what can be rented, cheapest first, also where it is not connected."""
    session = Session.of(ctx)
    given = {name: ctx.params.get(name) for name in OfferFilter.model_fields}  # the options are named as its fields
    wanted = _filter({name: value for name, value in given.items() if value not in (None, [], ())})
    with session.api() as api:
        page, found = _found(api, wanted, None if everything else limit)
    nothing = "Nothing in the catalog fits. Ask for less, or for another region or market."
    shown = Listing(HEADS, _row, lambda offer: f"{offer.backend} {offer.region} {offer.instance_type}", nothing)
    more = {"total": page.total, "oldest": page.oldest, "newest": page.newest, "oldest_days": page.oldest_days}
    session.out.listing(found, shown, **more)
    _tell(session, page, found)


def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TYPE", help="An instance type: g4dn.xlarge.")],
) -> None:
    """Show one instance type: its size, its GPU, its prices everywhere, and what else they say."""
    session = Session.of(ctx)
    with session.api() as api:
        found = api.catalog.type(name)
    if session.out.as_json:
        session.out.json(found.as_json())
        return
    session.out.fields(_fields(found))
    session.out.table(("REGION", "MARKET", "PRICE", "OF"), map(_place, found.items))


def gpus(ctx: typer.Context) -> None:
    """List GPU types: memory, bandwidth and peak rates, of the vendors' data sheets."""
    session = Session.of(ctx)
    if session.out.as_json:
        session.out.json(GpuPage(items=tuple(map(GpuView.from_gpu, GPUS))).as_json())
        return
    if session.out.quiet:
        for gpu in GPUS:
            session.out.data(gpu.name)
        return
    heads = ("GPU", "MEMORY", "BANDWIDTH", *(f"{dtype.value.upper()} TFLOP/S" for dtype in Dtype), "CUDA", "ALSO")
    session.out.table(heads, map(_gpu, GPUS))


def _found(api: Api, wanted: OfferFilter, limit: int | None) -> tuple[PricePage, list[PriceView]]:
    """The first page, and as many offers as are asked for; None: all."""
    page = api.catalog.page(wanted, limit=PAGE if limit is None else min(limit, PAGE))
    left = None if limit is None else limit - len(page.items)
    if page.next is None or left == 0:
        return page, list(page.items)
    return page, [*page.items, *islice(api.catalog.walk(wanted, cursor=page.next), left)]


def _filter(given: dict[str, object]) -> OfferFilter:
    try:
        return OfferFilter.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = f"--{str(first['loc'][0]).replace('_', '-')}"
        what = f"{option} is not right: {first['msg'].removeprefix('Value error, ').rstrip('.')}."
        raise BadInput(what, fix=f"Give another {option}.", field=option) from error


def _row(offer: PriceView) -> tuple[str, ...]:
    size = offer.capacity
    return (
        offer.backend,
        offer.region,
        offer.instance_type,
        _market(offer),
        f"{len(size.gpus)} × {size.gpu_name}" if size.gpus else "",
        f"{size.cpus:g}",
        format_memory(size.memory_bytes),
        f"{price_words(offer.rate_micros_per_hour)}/h",
        offer.dated,
        "yes" if offer.runnable else "no",
    )


def _market(offer: PriceView) -> str:
    years = offer.tariff.commitment_years
    return f"{offer.market.value.replace('_', '-')}{f' {years}y' if years else ''}"


def _place(offer: PriceView) -> tuple[str, ...]:
    return offer.region, _market(offer), f"{price_words(offer.rate_micros_per_hour)}/h", offer.dated


def _gpu(gpu: Gpu) -> tuple[str, ...]:
    rates = (f"{gpu.flops[dtype] / 1e12:g}" if dtype in gpu.flops else "" for dtype in Dtype)
    cuda = "" if gpu.capability is None else ".".join(map(str, gpu.capability))
    return (
        gpu.name,
        format_memory(gpu.memory_bytes),
        f"{gpu.bandwidth / 1e9:g} GB/s",
        *rates,
        cuda,
        ", ".join(gpu.groups),
    )


def _tell(session: Session, page: PricePage, found: Sequence[PriceView]) -> None:
    if page.total > len(found):
        session.out.say(f"{len(found)} of {page.total}; --all shows the others.")
    refused = f"; {page.refused} are refused, see `crucible catalog audit`" if page.refused else ""
    if page.oldest is not None:
        session.out.say(
            f"Prices are of {page.oldest} to {page.newest}, the oldest {page.oldest_days} days old{refused}."
        )
    elif page.refused:
        session.out.say(f"All {page.refused} prices are refused; `crucible catalog audit` says why.")
    for line in unconnected((offer.backend, offer.why) for offer in found if offer.why):
        session.out.say(line)


def _fields(found: TypeView) -> Iterator[tuple[str, str | None]]:
    first = found.items[0]
    tariff, size = first.tariff, first.capacity
    yield "Type", found.instance_type
    yield "Provider", first.backend
    yield "Size", f"{size.cpus:g} CPUs, {format_memory(size.memory_bytes)}"
    if found.gpu is not None:
        bandwidth = f"{found.gpu.bandwidth_bytes_per_second / 1e9:g} GB/s"
        yield "GPUs", f"{len(size.gpus)} × {found.gpu.name}, {format_memory(found.gpu.memory_bytes)} each, {bandwidth}"
    least = f", at least {format_duration(first.billing.minimum)}" if first.billing.minimum else ""
    yield "Billed", f"by {format_duration(first.billing.granularity)}{least}"
    yield "Starts in", f"about {format_duration(first.startup_seconds)}"
    yield "Dedicated", {True: "yes", False: "no", None: None}[tariff.dedicated]
    yield "Egress", None if tariff.egress_micros_per_gb is None else f"{dollars(tariff.egress_micros_per_gb)}/GB"
    storage = tariff.storage_micros_per_gb_month
    yield "Storage", None if storage is None else f"{dollars(storage)}/GB and month"
    yield "Source", tariff.source
    yield "Runnable", "yes" if first.runnable else f"no: {first.why}"
