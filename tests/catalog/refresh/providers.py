"""Providers' price interfaces as objects: they answer in the documented shapes, page by page, and can misbehave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

from crucible.catalog.store import shipped

Handler = Callable[[httpx2.Request], httpx2.Response]

AWS_HEAD = (
    "SKU,OfferTermCode,RateCode,TermType,PriceDescription,EffectiveDate,StartingRange,EndingRange,Unit,PricePerUnit,"
    "Currency,RelatedTo,LeaseContractLength,PurchaseOption,OfferingClass,Product Family,serviceCode,Location,"
    "Location Type,Instance Type,Tenancy,Operating System,License Model,Pre Installed S/W,CapacityStatus,Region Code"
)


def aws_line(kind: str, price: str, **changes: str) -> str:
    """A line of EC2's price list; by default a plain Linux machine on demand."""
    told = {
        "SKU": "ABC",
        "TermType": "OnDemand",
        "Unit": "Hrs",
        "PricePerUnit": price,
        "Currency": "USD",
        "Instance Type": kind,
        "Tenancy": "Shared",
        "Operating System": "Linux",
        "Pre Installed S/W": "NA",
        "CapacityStatus": "Used",
        **changes,
    }
    return ",".join(f'"{told.get(name, "")}"' for name in AWS_HEAD.split(","))


def reserved(kind: str, price: str, years: str, **changes: str) -> str:
    terms = {"TermType": "Reserved", "LeaseContractLength": years, "PurchaseOption": "No Upfront"}
    return aws_line(kind, price, **{**terms, "OfferingClass": "standard", **changes})


def aws_list(*lines: str) -> str:
    about = ['"FormatVersion","v1.0"', '"Disclaimer","This pricing list is for informational purposes only."']
    return (
        "\n".join([*about, '"OfferCode","AmazonEC2"', ",".join(f'"{n}"' for n in AWS_HEAD.split(",")), *lines]) + "\n"
    )


@dataclass
class FakeAws:
    """`lists`: the price list of each region. `advice`: of the Spot Advisor for Linux, by region and type."""

    lists: dict[str, str] = field(default_factory=dict)
    advice: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "spot-bid-advisor.s3.amazonaws.com":
            labels = ("<5%", "5-10%", "10-15%", "15-20%", ">20%")
            ranges = [{"index": n, "label": label, "dots": n, "max": 5 * n} for n, label in enumerate(labels)]
            places = {region: {"Linux": kinds, "Windows": {}} for region, kinds in self.advice.items()}
            return httpx2.Response(200, json={"ranges": ranges, "instance_types": {}, "spot_advisor": places})
        region = request.url.path.split("/")[-2]
        if region not in self.lists:
            return httpx2.Response(404)
        return httpx2.Response(200, text=self.lists[region])


class FakePaginator:
    def __init__(self, pages: list[dict[str, Any]]) -> None:
        self._pages = pages

    def paginate(self, **_arguments: object) -> Iterator[dict[str, Any]]:
        yield from self._pages


@dataclass
class FakeSdk:
    """Clients of the AWS SDK. `products` by region, `history` by region; `broken` raises as the SDK does."""

    products: dict[str, list[str]] = field(default_factory=dict)
    history: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    broken: Exception | None = None
    region: str = ""

    def __call__(self, service: str, region: str) -> FakeSdk:
        return FakeSdk(self.products, self.history, self.broken, region)

    def get_paginator(self, operation: str) -> FakePaginator:
        if self.broken is not None:
            raise self.broken
        if operation == "get_products":
            (texts,) = self.products.values()
            return FakePaginator([{"PriceList": [text]} for text in texts])
        return FakePaginator([{"SpotPriceHistory": self.history.get(self.region, [])}])


def product(kind: str, price: str, currency: str = "USD") -> str:
    dimension = {
        "unit": "Hrs",
        "pricePerUnit": {currency: price},
        "description": f"${price} per On Demand Linux {kind}",
    }
    attributes = {"instanceType": kind, "regionCode": "us-east-1", "operatingSystem": "Linux", "tenancy": "Shared"}
    terms = {"OnDemand": {"ABC.JRTCKXETXF": {"priceDimensions": {"ABC.JRTCKXETXF.6YS6EN2CT7": dimension}}}}
    return json.dumps({"product": {"attributes": attributes}, "serviceCode": "AmazonEC2", "terms": terms})


def azure_item(kind: str, price: object, region: str = "eastus", **changes: object) -> dict[str, object]:
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": region,
        "productName": "Virtual Machines NCasT4_v3 Series",
        "skuName": kind.removeprefix("Standard_").replace("_", " "),
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "armSkuName": kind,
        **changes,
    }


@dataclass
class FakeAzure:
    """`items` of every region, `size` to a page; `elsewhere`: the next page is named at another host."""

    items: list[dict[str, object]] = field(default_factory=list)
    size: int = 2
    elsewhere: bool = False
    asked: list[str] = field(default_factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(str(request.url))
        region = request.url.params.get("$filter", "").rpartition(" eq ")[2].strip("'")
        found = [item for item in self.items if item["armRegionName"] == region]
        start = int(request.url.params.get("$skip", "0"))
        following = request.url.copy_merge_params({"$skip": str(start + self.size)})
        link = str(following) if start + self.size < len(found) else None
        if self.elsewhere:
            link = "https://example.com/next"
        body = {"BillingCurrency": "USD", "Items": found[start : start + self.size], "NextPageLink": link}
        return httpx2.Response(200, json={**body, "Count": self.size})


def sku(description: str, price: float, regions: list[str], **changes: object) -> dict[str, object]:
    """A SKU of Compute Engine; `price` in dollars an hour, or a GiB and hour."""
    whole = int(price)
    unit = {"currencyCode": "USD", "units": str(whole), "nanos": round((price - whole) * 1e9)}
    rates = [{"startUsageAmount": 0, "unitPrice": unit}]
    spot = "Spot" in description
    return {
        "skuId": "0000-1111-2222",
        "description": description,
        "category": {"resourceFamily": "Compute", "usageType": "Preemptible" if spot else "OnDemand"},
        "serviceRegions": regions,
        "pricingInfo": [{"pricingExpression": {"usageUnit": "h", "tieredRates": rates}}],
        **changes,
    }


@dataclass
class FakeGcp:
    """`pages` of SKUs. `endless`: the same page for ever."""

    pages: list[list[dict[str, object]]] = field(default_factory=list)
    key: str = "a-key"
    endless: bool = False

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.headers.get("X-Goog-Api-Key") != self.key:
            return httpx2.Response(403, json={"error": {"code": 403, "status": "PERMISSION_DENIED"}})
        number = int(request.url.params.get("pageToken", "0"))
        if self.endless:
            return httpx2.Response(200, json={"skus": [], "nextPageToken": "1"})
        following = str(number + 1) if number + 1 < len(self.pages) else ""
        return httpx2.Response(200, json={"skus": self.pages[number], "nextPageToken": following})


def lambda_type(
    name: str, cents: object, gpu: str, regions: tuple[str, ...] = (), gpus: int = 1, **specs: object
) -> dict[str, object]:
    size = {"vcpus": 30, "memory_gib": 200, "storage_gib": 512, "gpus": gpus, **specs}
    about = {"name": name, "description": f"{gpus}x {gpu}", "gpu_description": gpu}
    places = [{"name": region, "description": region.title()} for region in regions]
    kind = {**about, "price_cents_per_hour": cents, "specs": size}
    return {"instance_type": kind, "regions_with_capacity_available": places}


@dataclass
class FakeLambda:
    types: dict[str, object] = field(default_factory=dict)
    key: str = "a-key"

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            error = {"code": "global/invalid-api-key", "message": "API key was invalid, expired, or deleted."}
            return httpx2.Response(401, json={"error": error})
        return httpx2.Response(200, json={"data": self.types})


def lambda_types(factor: float = 1.0) -> dict[str, object]:
    """Every type that is shipped, at its price times `factor`."""
    rows = [row for row in shipped().rows if row.provider == "lambda"]
    return {
        row.instance_type: lambda_type(row.instance_type, (row.on_demand or 0) / 1e4 * factor, "N/A") for row in rows
    }
