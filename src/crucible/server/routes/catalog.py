"""The catalog: what can be rented and for how much, whether its provider is connected or not."""

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
async def list_offers(control: Control, wanted: Annotated[OfferQuery, Query()]) -> PricePage:
    """Offers that fit, cheapest first, with their prices' age and source; `next` is the cursor of the following page.

    Those of a provider that is not connected have `runnable` false and say in `why` what connects it.
    """
    return await control.catalog.page(wanted, limit=wanted.limit, cursor=wanted.cursor)


@router.get("/gpus")
async def gpus() -> GpuPage:
    """GPU types: memory, bandwidth, peak rates by number format, and the data sheets they are from."""
    return GpuPage(items=tuple(map(GpuView.from_gpu, GPUS)))


@router.get("/types/{type}", responses=problem_responses(404))
async def show(type: Annotated[str, Path(min_length=1, max_length=100)], control: Control) -> TypeView:
    """One instance type: its GPU, and its offers in all regions and markets, cheapest first."""
    return await control.catalog.instance_type(type)


@router.get("/audit")
async def audit(control: Control) -> PriceAuditView:
    """What is wrong with the prices in use: each finding with row, rule and fix. What is refused is not offered."""
    return await control.catalog.audit()


@router.post("/audit", responses=problem_responses(413, 504))
async def compare(
    request: Request,
    control: Control,
    who: Who,
    provider: Annotated[str | None, Query(max_length=100, description="whose prices (default: by the types)")] = None,
    over: Annotated[float, Query(ge=0, le=MOST_PERCENT, description="percent from which two prices differ")] = 10.0,
) -> PriceComparisonView:
    """The prices in use beside another table, sent as CSV with InstanceType, Region, Price and perhaps SpotPrice."""
    body = await read_body(request, MAX_JSON, "The table")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BadInput("The table is no text.", fix="Send CSV in UTF-8.") from None
    return await control.catalog.compare(who, text, provider=provider, over=over / 100)


@router.post("/refresh", responses=problem_responses(502, 503, 504))
async def refresh(wish: RefreshRequest, control: Control, who: Who) -> RefreshView:
    """Ask a provider's price interface for the prices of today; for administrators.

    What it answers passes the audit before it is kept; what is refused of it (`items`) leaves the old prices in use.
    """
    return await control.catalog.refresh(who, wish.provider, wish.regions)
