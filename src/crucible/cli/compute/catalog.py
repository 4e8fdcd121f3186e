"""`crucible catalog`: rentable instance types and their prices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated

import typer
from pydantic import ValidationError

from crucible.cli.context import CommandContext
from crucible.cli.output.format import format_dollars, format_price, format_unconnected
from crucible.cli.output.output import ListFormat
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
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="TYPE", help="GPU type or group, such as A100.")] = None,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="Minimum number of GPUs (default: 0).")] = 0,
    gpu_memory: Annotated[
        str | None, typer.Option("--gpu-memory", metavar="SIZE", help="Minimum memory of each GPU, such as 24GB.")
    ] = None,
    cpus: Annotated[
        float, typer.Option("--cpus", metavar="N", help="Minimum number of CPUs (hardware threads; default: 0).")
    ] = 0.0,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="Minimum memory, such as 64GB.")
    ] = None,
    provider: Annotated[
        Texts, typer.Option("--provider", metavar="NAME", help="Only this provider. Repeatable.")
    ] = None,
    region: Annotated[Texts, typer.Option("--region", metavar="REGION", help="Only this region. Repeatable.")] = None,
    market: Annotated[
        Texts,
        typer.Option("--market", metavar="MARKET", help="Only this market: on-demand, spot or reserved. Repeatable."),
    ] = None,
    max_price: Annotated[
        float | None, typer.Option("--max-price", metavar="DOLLARS", help="Maximum price per hour.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of rows (default: 50).")
    ] = 50,
    everything: Annotated[bool, typer.Option("--all", help="List every match.")] = False,
) -> None:
    """List rentable instance types, cheapest first, including those of backends that are not connected."""
    cli = CommandContext.from_typer(ctx)
    options = {name: ctx.params.get(name) for name in OfferFilter.model_fields}  # the options are named as its fields
    offer_filter = _filter({name: value for name, value in options.items() if value not in (None, [], ())})
    with cli.api() as api:
        page, offers = _find_offers(api, offer_filter, None if everything else limit)
    nothing = "Nothing in the catalog matches. Ask for less, or try another region or market."
    list_format = ListFormat(
        HEADS, _row, lambda offer: f"{offer.backend} {offer.region} {offer.instance_type}", nothing
    )
    more = {"total": page.total, "oldest": page.oldest, "newest": page.newest, "oldest_days": page.oldest_days}
    cli.out.print_list(offers, list_format, **more)
    _print_footer(cli, page, offers)


def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TYPE", help="Instance type, such as g4dn.xlarge.")],
) -> None:
    """Show an instance type: size, GPU, billing, and prices in every region."""
    cli = CommandContext.from_typer(ctx)
    with cli.api() as api:
        instance_type = api.catalog.type(name)
    if cli.out.as_json:
        cli.out.json(instance_type.as_json())
        return
    cli.out.fields(_fields(instance_type))
    cli.out.table(("REGION", "MARKET", "PRICE", "OF"), map(_price_row, instance_type.items))


def gpus(ctx: typer.Context) -> None:
    """List GPU types: memory, bandwidth and peak rates, from the vendors' data sheets."""
    cli = CommandContext.from_typer(ctx)
    if cli.out.as_json:
        cli.out.json(GpuPage(items=tuple(map(GpuView.from_gpu, GPUS))).as_json())
        return
    if cli.out.quiet:
        for gpu in GPUS:
            cli.out.data(gpu.name)
        return
    heads = ("GPU", "MEMORY", "BANDWIDTH", *(f"{dtype.value.upper()} TFLOP/S" for dtype in Dtype), "CUDA", "ALSO")
    cli.out.table(heads, map(_gpu_row, GPUS))


def _find_offers(api: Api, offer_filter: OfferFilter, limit: int | None) -> tuple[PricePage, list[PriceView]]:
    """Return the first page and up to `limit` offers (None: all)."""
    page = api.catalog.page(offer_filter, limit=PAGE if limit is None else min(limit, PAGE))
    left = None if limit is None else limit - len(page.items)
    if page.next is None or left == 0:
        return page, list(page.items)
    return page, [*page.items, *islice(api.catalog.walk(offer_filter, cursor=page.next), left)]


def _filter(options: dict[str, object]) -> OfferFilter:
    try:
        return OfferFilter.model_validate(options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = f"--{str(first['loc'][0]).replace('_', '-')}"
        what = f"{option} is invalid: {first['msg'].removeprefix('Value error, ').rstrip('.')}."
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
        f"{format_price(offer.rate_micros_per_hour)}/h",
        offer.dated,
        "yes" if offer.runnable else "no",
    )


def _market(offer: PriceView) -> str:
    years = offer.tariff.commitment_years
    return f"{offer.market.value.replace('_', '-')}{f' {years}y' if years else ''}"


def _price_row(offer: PriceView) -> tuple[str, ...]:
    return offer.region, _market(offer), f"{format_price(offer.rate_micros_per_hour)}/h", offer.dated


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
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


def _print_footer(cli: CommandContext, page: PricePage, offers: Sequence[PriceView]) -> None:
    if page.total > len(offers):
        cli.out.say(f"{len(offers)} of {page.total}; --all shows the rest.")
    refused = f"; {page.refused} prices are rejected, see `crucible catalog audit`" if page.refused else ""
    if page.oldest is not None:
        cli.out.say(f"Prices are from {page.oldest} to {page.newest}, the oldest {page.oldest_days} days old{refused}.")
    elif page.refused:
        cli.out.say(f"All {page.refused} prices are rejected; `crucible catalog audit` shows why.")
    for line in format_unconnected((offer.backend, offer.why) for offer in offers if offer.why):
        cli.out.say(line)


def _fields(view: TypeView) -> Iterator[tuple[str, str | None]]:
    first = view.items[0]
    tariff, size = first.tariff, first.capacity
    yield "Type", view.instance_type
    yield "Provider", first.backend
    yield "Size", f"{size.cpus:g} CPUs, {format_memory(size.memory_bytes)}"
    if view.gpu is not None:
        bandwidth = f"{view.gpu.bandwidth_bytes_per_second / 1e9:g} GB/s"
        yield "GPUs", f"{len(size.gpus)} × {view.gpu.name}, {format_memory(view.gpu.memory_bytes)} each, {bandwidth}"
    least = f", at least {format_duration(first.billing.minimum)}" if first.billing.minimum else ""
    yield "Billed", f"by {format_duration(first.billing.granularity)}{least}"
    yield "Starts in", f"about {format_duration(first.startup_seconds)}"
    yield "Dedicated", {True: "yes", False: "no", None: None}[tariff.dedicated]
    yield "Egress", None if tariff.egress_micros_per_gb is None else f"{format_dollars(tariff.egress_micros_per_gb)}/GB"
    storage = tariff.storage_micros_per_gb_month
    yield "Storage", None if storage is None else f"{format_dollars(storage)}/GB and month"
    yield "Source", tariff.source
    yield "Runnable", "yes" if first.runnable else f"no: {first.why}"
