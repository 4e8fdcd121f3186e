"""The catalog over HTTP."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from tests.catalog.prices import make_prices
from tests.catalog.refresh.providers import FakeLambda, lambda_types
from tests.server.app import App


@pytest.fixture
def http(app: App, client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """Asks a server that no provider answers, on a day of this test's own."""
    app.control.catalog = make_prices()
    return client


async def test_offers_are_listed_by_their_filters(http: httpx2.AsyncClient) -> None:
    query = {
        "gpu": "A100",
        "gpus": "8",
        "provider": "aws,lambda",
        "market": "on-demand",
        "max_price": "22",
        "limit": 500,
    }
    page = (await http.get("/api/v1/catalog", params=query)).json()
    assert page["total"] == len(page["items"]) > 3
    for offer in page["items"]:
        assert offer["backend"] in ("aws", "lambda")
        assert offer["capacity"]["gpu_name"].startswith("A100")
        assert len(offer["capacity"]["gpus"]) >= 8
        assert offer["rate_micros_per_hour"] <= 22_000_000
        assert (offer["market"], offer["runnable"]) == ("on_demand", False)


async def test_sizes_are_read_as_people_write_them(http: httpx2.AsyncClient) -> None:
    query = {"gpu_memory": "80GB", "memory": "1024GiB", "cpus": "96"}
    page = (await http.get("/api/v1/catalog", params=query)).json()
    assert {offer["capacity"]["gpu_memory_bytes"] >= 80 * 1024**3 for offer in page["items"]} == {True}


async def test_pages_follow_each_other(http: httpx2.AsyncClient) -> None:
    first = (await http.get("/api/v1/catalog", params={"limit": 3})).json()
    second = (await http.get("/api/v1/catalog", params={"limit": 3, "cursor": first["next"]})).json()
    both = (await http.get("/api/v1/catalog", params={"limit": 6})).json()
    assert [*first["items"], *second["items"]] == both["items"]


@pytest.mark.parametrize(
    "query",
    [
        {"gpu": "A1000"},
        {"gpu": "x" * 300},
        {"gpus": "-1"},
        {"gpus": "many"},
        {"gpu_memory": "much"},
        {"cpus": "1e99"},
        {"market": "weekly"},
        {"provider": "amazon"},
        {"region": "mars"},
        {"max_price": "-1"},
        {"max_price": "nan"},
        {"cursor": "nonsense"},
        {"limit": "0"},
        {"limit": "100000"},
    ],
)
async def test_bad_filters_are_refused_with_a_fix(http: httpx2.AsyncClient, query: dict[str, str]) -> None:
    answer = await http.get("/api/v1/catalog", params=query)
    assert answer.status_code == 422
    assert answer.json()["fix"]


async def test_a_type_is_shown_or_not_found(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/api/v1/catalog/types/g4dn.xlarge")).json()["gpu"]["name"] == "T4"
    assert (await http.get("/api/v1/catalog/types/n1-standard-8+1xV100")).json()["gpu"]["name"] == "V100-16GB"
    answer = await http.get("/api/v1/catalog/types/g4dn.xlrge")
    assert (answer.status_code, answer.json()["meant"]) == (404, "g4dn.xlarge")


async def test_gpus_and_the_audit_are_listed(http: httpx2.AsyncClient) -> None:
    gpus = {gpu["name"]: gpu for gpu in (await http.get("/api/v1/catalog/gpus")).json()["items"]}
    assert gpus["H100-SXM"]["capability"] == "9.0"
    assert gpus["T4"]["flops"]["fp16"] == 65 * 10**12
    audit = (await http.get("/api/v1/catalog/audit")).json()
    assert audit["refused"] == 0
    assert {item["rule"] for item in audit["items"]} == {"old"}


async def test_another_table_is_compared(http: httpx2.AsyncClient) -> None:
    table = "InstanceType,Region,Price\ng4dn.xlarge,us-east-1,0.526\np3.2xlarge,us-east-1,4\n"
    found = (await http.post("/api/v1/catalog/audit", content=table, params={"over": 5})).json()
    assert (found["matched"], found["within"]["2%"], found["differences_count"]) == (2, 1, 1)
    assert found["differences"][0]["percent"] == -23.5


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"a,b\n1,2\n", b"InstanceType,Region,Price\nx,y,1\n"])
async def test_what_is_no_table_is_refused(http: httpx2.AsyncClient, body: bytes) -> None:
    answer = await http.post("/api/v1/catalog/audit", content=body)
    assert answer.status_code == 422
    assert answer.json()["fix"]


async def test_a_table_that_is_too_large_is_refused(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/api/v1/catalog/audit", content=b"x" * (8 * 1024**2 + 1))
    assert answer.status_code == 413


async def test_a_provider_is_asked_for_its_prices(app: App, http: httpx2.AsyncClient, tmp_path: Path) -> None:
    app.control.catalog = make_prices(tmp_path, asked=FakeLambda(lambda_types(1.1)))
    found = (await http.post("/api/v1/catalog/refresh", json={"provider": "lambda"})).json()
    assert (found["rows"], found["changed"], found["refused"]) == (42, 42, 0)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"provider": "modal"}, 422, "bad_input"),
        ({"provider": "amazon"}, 422, "unknown_name"),
        ({"provider": "azure", "regions": ["mars"]}, 422, "unknown_name"),
        ({"provider": "azure", "regions": ["eastus"] * 21}, 422, "bad_input"),
        ({"provider": "azure"}, 502, "bad_answer"),
        ({}, 422, "bad_input"),
        ({"provider": "aws", "more": 1}, 422, "bad_input"),
    ],
)
async def test_a_refresh_that_fails_says_why(
    http: httpx2.AsyncClient, body: dict[str, object], status: int, code: str
) -> None:
    answer = await http.post("/api/v1/catalog/refresh", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.json()["fix"]
