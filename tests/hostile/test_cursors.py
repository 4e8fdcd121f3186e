"""A cursor says where a page ended, and nothing more: whoever brings it gets his own things, or a refusal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.authorisation.populated_app import PopulatedApp, populate
from tests.control.harness import give_back, job_spec, make_harness

from crucible.core.people.identity import OWNER

LISTS = "/api/v1/jobs"


@pytest.fixture
async def populated_app(tmp_path: Path) -> AsyncIterator[PopulatedApp]:
    harness = await make_harness(tmp_path)
    found = await populate(harness)
    for project in ("alpha", "beta", "alpha", "beta"):
        await found.control.jobs.submit(OWNER, job_spec(project=project), None)
    yield found
    await give_back(harness.ports.db)


async def get(populated_app: PopulatedApp, who: str, url: str, **query: Any) -> httpx2.Response:
    transport = httpx2.ASGITransport(populated_app.api)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.get(url, headers=populated_app.headers(who), params=query)


async def test_of_another_project_shows_ones_own_jobs_alone(populated_app: PopulatedApp) -> None:
    theirs = (await get(populated_app, "admin", LISTS, limit=1)).json()["next"]
    for who, project in (("stranger", "beta"), ("member", "alpha")):
        page = (await get(populated_app, who, LISTS, cursor=theirs)).json()["items"]
        assert page
        assert {job["project"] for job in page} == {project}


async def test_of_another_list_is_refused(populated_app: PopulatedApp) -> None:
    listed = (await get(populated_app, "member", LISTS, limit=1)).json()["next"]
    search = f"{LISTS}/{populated_app.job}/logs/search"
    answer = await get(populated_app, "member", search, q="line", cursor=listed)
    assert (answer.status_code, answer.json()["field"]) == (422, "cursor")
    assert answer.json()["fix"]


async def test_of_a_search_is_none_of_a_list(populated_app: PopulatedApp) -> None:
    from crucible.control.telemetry.log_search import _Position, write_cursor

    answer = await get(populated_app, "member", LISTS, cursor=write_cursor(_Position(1, 1, 1)))
    assert (answer.status_code, answer.json()["field"]) == (422, "cursor")


@pytest.mark.parametrize("numbers", [(9, 1, 1), (1, 10**15, 1), (1, 1, 10**15), (1, 0, 0), (10**18, 10**18, 10**18)])
async def test_of_a_search_that_never_was_finds_nothing_of_others(
    populated_app: PopulatedApp, numbers: tuple[int, int, int]
) -> None:
    from crucible.control.telemetry.log_search import _Position, write_cursor

    search = f"{LISTS}/{populated_app.job}/logs/search"
    answer = await get(populated_app, "member", search, q="line", cursor=write_cursor(_Position(*numbers)))
    assert answer.status_code in (200, 422)
    refused = await get(populated_app, "stranger", search, q="line", cursor=write_cursor(_Position(*numbers)))
    assert refused.status_code == 404


@pytest.mark.parametrize("cut", [1, 5, 10])
async def test_that_was_cut_or_changed_is_refused(populated_app: PopulatedApp, cut: int) -> None:
    cursor = (await get(populated_app, "member", LISTS, limit=1)).json()["next"]
    for broken in (cursor[:-cut], cursor[cut:], cursor[::-1], cursor + "AAAA", cursor.swapcase()):
        assert (await get(populated_app, "member", LISTS, cursor=broken)).status_code == 422
