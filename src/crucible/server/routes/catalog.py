"""The catalog: offers and prices of all providers, connected or not."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict
from starlette.requests import Request

from crucible.core.compute.gpus import GPUS
from crucible.core.compute.offer_filter import OfferFilter
from crucible.core.errors import BadInput
from crucible.core.requests import RefreshRequest
from crucible.core.views.catalog import (
    GpuPage,
    GpuView,
    PriceAuditView,
    PriceComparisonView,
    PricePage,
    RefreshView,
    TypeView,
)
from crucible.server.context import Control, Who
from crucible.server.http.problems import problem_responses
from crucible.server.security.size_limits import MAX_JSON, Cursor, PageSize, read_body

router = APIRouter(prefix="/api/v1/catalog", tags=["catalog"])

MOST_PERCENT = 10_000


class OfferQuery(OfferFilter):
    model_config = ConfigDict(extra="ignore")

    limit: PageSize = 50
    cursor: Cursor = None


@router.get("")
async def list_offers(control: Control, query: Annotated[OfferQuery, Query()]) -> PricePage:
    """Return one page of matching offers, cheapest first, with the age and source of their prices.

    `next` is the cursor of the next page. For offers of a provider that is not connected `runnable` is false, and `why`
    says how to connect it.
    """
    return await control.catalog.page(query, limit=query.limit, cursor=query.cursor)


@router.get("/gpus")
async def gpus() -> GpuPage:
    """List GPU types with memory, bandwidth, peak rates by number format, and their data sheets."""
    return GpuPage(items=tuple(map(GpuView.from_gpu, GPUS)))


@router.get("/types/{type}", responses=problem_responses(404))
async def show(type: Annotated[str, Path(min_length=1, max_length=100)], control: Control) -> TypeView:
    """Return an instance type: its GPU, and its offers in all regions and markets, cheapest first."""
    return await control.catalog.instance_type(type)


@router.get("/audit")
async def audit(control: Control) -> PriceAuditView:
    """Audit the prices in use: each finding has its row, rule and fix. Refused prices are not offered."""
    return await control.catalog.audit()


@router.post("/audit", responses=problem_responses(413, 504))
async def compare(
    request: Request,
    control: Control,
    who: Who,
    provider: Annotated[
        str | None, Query(max_length=100, description="provider of the prices (default: detected from the types)")
    ] = None,
    over: Annotated[
        float, Query(ge=0, le=MOST_PERCENT, description="report differences of at least this many percent")
    ] = 10.0,
) -> PriceComparisonView:
    """Compare the prices in use with a CSV table of InstanceType, Region, Price and, optionally, SpotPrice."""
    body = await read_body(request, MAX_JSON, "The table")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BadInput("The table is not text.", fix="Send CSV in UTF-8.") from None
    return await control.catalog.compare(who, text, provider=provider, over=over / 100)


@router.post("/refresh", responses=problem_responses(502, 503, 504))
async def refresh(body: RefreshRequest, control: Control, who: Who) -> RefreshView:
    """Fetch current prices from a provider's price API; for administrators.

    New prices are audited before they are stored. For those that are refused (`items`) the old prices stay in use.
    """
    return await control.catalog.refresh(who, body.provider, body.regions)
