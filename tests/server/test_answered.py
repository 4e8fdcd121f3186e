"""Every operation says what it answers, and answers what it says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.authorisation.populated_app import CODE, OWNERS, PopulatedApp, populate
from tests.control.harness import give_back, make_harness, sha
from tests.server.openapi_contract import JSON, document, wrong_with_answer

from crucible.control.resources.models import model_view
from crucible.control.upkeep.prune_candidates import PrunePlan
from crucible.control.upkeep.retention import plan_view
from crucible.core.errors import Trouble
from crucible.core.people.identity import OWNER
from crucible.core.views.base import SOMETIMES
from crucible.core.views.jobs import JobView
from crucible.core.views.server import PrunedView
from crucible.wire.models.options import Option
from crucible.wire.models.plugins import Plugin, PluginProblem

AUTH = {"Authorization": f"Bearer {OWNERS}"}


def good_answers() -> dict[str, dict[str, Any]]:
    """By operation: those of its answers that are JSON, by status."""
    found: dict[str, dict[str, Any]] = {}
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            told = {s: r["content"][JSON]["schema"] for s, r in operation["responses"].items() if _is_good(s, r)}
            found |= {f"{method.upper()} {path}": told} if told else {}
    return found


def _is_good(status: str, response: Any) -> bool:
    return status < "300" and JSON in response.get("content", {})


def test_every_operation_that_answers_json_has_a_schema() -> None:
    found = good_answers()
    assert len(found) > 80
    assert [row for row, told in found.items() if not all(told.values())] == []


def test_again_is_documented_as_the_first_time() -> None:
    told = good_answers()["POST /api/v1/jobs"]
    assert told["200"] == told["201"] == {"$ref": "#/components/schemas/JobView"}


def test_what_every_answer_has_is_required_and_what_some_have_is_not() -> None:
    schema = document()["components"]["schemas"]["JobView"]
    assert {"id", "project", "cost", "attempts", "waiting"} <= set(schema["required"])
    assert not {"recent_logs", "health", "notes"} & set(schema["required"])
    text = json.dumps(document()["components"]["schemas"])
    assert SOMETIMES not in text
    assert "default" not in schema["properties"]["attempts"]


def test_no_view_is_called_as_something_that_is_sent() -> None:
    """A name stands for one thing: what is sent and what is answered share only values that are the same."""
    schemas = document()["components"]["schemas"]
    assert not [name for name in schemas if "__" in name], "FastAPI tells two of one name apart by their modules"


def test_a_client_reads_what_an_older_server_says_and_keeps_what_a_newer_one_does() -> None:
    view = JobView.model_validate({"id": "job-1", "status": "running", "phase": "running", "new": [1]})
    assert (view.project, view.as_json()["new"]) == ("", [1])


@pytest.fixture
async def populated_app(tmp_path: Path) -> AsyncIterator[PopulatedApp]:
    harness = await make_harness(tmp_path)
    yield await populate(harness)
    await give_back(harness.ports.db)


async def asked(populated_app: PopulatedApp, row: str, path: str, **given: Any) -> Any:
    """What is answered to the owner, after a look at whether it is what was promised."""
    transport = httpx2.ASGITransport(populated_app.api)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=AUTH) as client:
        answer = await client.request(row.split()[0], path, **given)
    assert answer.status_code < 300, answer.text
    assert list(wrong_with_answer(row, answer.status_code, answer.content)) == []
    return answer.json()


async def test_answers_that_the_table_of_rights_does_not_get(populated_app: PopulatedApp, tmp_path: Path) -> None:
    bundle = "PUT /api/v1/bundles/{sha256}"
    assert (await asked(populated_app, bundle, f"/api/v1/bundles/{sha(CODE)}", content=CODE))["created"] is False
    table = "InstanceType,Region,Price\ng4dn.xlarge,us-east-1,0.99\n"
    compared = await asked(populated_app, "POST /api/v1/catalog/audit", "/api/v1/catalog/audit", content=table)
    assert compared["differences_count"] == 1
    await populated_app.control.people.add_user(OWNER, "ada", password="a long password")
    login = {"name": "ada", "password": "a long password"}
    assert (await asked(populated_app, "POST /api/v1/login", "/api/v1/login", json=login))["token"]
    ended = await asked(populated_app, "POST /api/v1/jobs/{id}/cancel", f"/api/v1/jobs/{populated_app.job}/cancel")
    assert ended["attempts"], "one that has run"


def test_a_prune_that_removed_something_and_could_not_remove_all() -> None:
    logs = PrunedView(what="logs", job=None, count=2, bytes=10, why="nobody needs them")
    plan = PrunePlan((), (logs, PrunedView(what="artifacts", job="job-1", count=1, bytes=5, why="it is old")))
    told = plan_view(plan, dry_run=False, failed={"a/key": Trouble("The store is away.")})
    assert list(wrong_with_answer("POST /api/v1/prune", 200, told.model_dump_json().encode())) == []


def test_a_model_and_a_broken_one() -> None:
    plugin = Plugin(
        name="tiny", entry="tiny:Model", distribution="tiny", distribution_version="1", python="/usr/bin/python3",
        schema={"epochs": Option(int, default=2, minimum=1)},
    )  # fmt: skip
    broken = Plugin(
        name="odd", entry="odd:Model", distribution="odd", distribution_version="1", python="/usr/bin/python3",
        problem=PluginProblem("cannot be imported", "Traceback"),
    )  # fmt: skip
    for one in (plugin, broken):
        content = json.dumps(model_view(one).as_json()).encode()
        assert list(wrong_with_answer("GET /api/v1/models/{name}", 200, content)) == []


def test_an_answer_that_is_not_as_promised_is_found() -> None:
    sound = {"secrets": 1, "keys": 1}
    for wrong in ({"secrets": 1}, {**sound, "more": 1}, {**sound, "keys": "one"}):
        assert list(wrong_with_answer("POST /api/v1/secrets/rotate", 200, json.dumps(wrong).encode()))
    assert not list(wrong_with_answer("POST /api/v1/secrets/rotate", 200, json.dumps(sound).encode()))
