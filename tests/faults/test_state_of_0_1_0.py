"""A state folder that version 0.1.0 left, opened by the present one: all of it is there, and what waited runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.harness import View, until
from tests.state_0_1_0.api_snapshot import take_snapshot
from tests.state_0_1_0.state import LONG, SMALL, State, check_unfinished_jobs, snapshot, state
from tests.webhook_receiver import Receiver

PROSE = {"message", "advice", "judged_at"}
"""Of the API's answers, what is worded when it is asked for."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    """The state folder of 0.1.0 with a present server on it; nothing of 0.1.0 is alive."""
    with state(tmp_path_factory.mktemp("state"), "https") as old:
        old.open_gate()
        old.crucible.start()
        yield old


@pytest.fixture(scope="module")
def shown(opened: State) -> View:
    """What its API said before any test changed anything."""
    jobs = list(snapshot()["https"]["jobs"].values())
    with opened.crucible.client() as client:
        return take_snapshot(lambda path: client.get(f"/api/v1{path}").raise_for_status().content, jobs)


@pytest.fixture(autouse=True)
def look_first(request: pytest.FixtureRequest) -> None:
    if "opened" in request.fixturenames:
        request.getfixturevalue("shown")


def test_new_agents_take_over_from_dead_ones(opened: State) -> None:
    check_unfinished_jobs(opened)


def test_jobs_that_ended_are_shown_as_they_were(opened: State, shown: View) -> None:
    """With status, reasons, attempts, cost, events, metrics, output, files: all that the API of 0.1.0 said."""
    recorded = snapshot()["https"]
    for name, job in recorded["jobs"].items():
        assert not missing(recorded["snapshot"]["jobs"][job], shown["jobs"][job]), name
    ids = {job["id"] for job in opened.crucible.get("/api/v1/jobs", limit=500)["items"]}
    assert ids >= {*recorded["jobs"].values(), *opened.jobs.values()}


def test_people_secrets_prices_and_predictions_are_shown_as_they_were(shown: View) -> None:
    then, now = snapshot()["https"]["snapshot"]["rest"], shown["rest"]
    for path in ("users", "projects", "projects/vision/members", "projects/default/secrets"):
        assert not missing(then[path], now[path]), path
    gone = [[m for m in rest["machines?all=true"]["items"] if m["state"] == "gone"] for rest in (then, now)]
    assert len(gone[0]) == 2
    assert not missing(gone[0], gone[1]), "what was rented, and what it cost"
    (prediction,) = then["predictions"]["items"]
    assert prediction in now["predictions"]["items"]


def missing(then: Any, now: Any, at: str = "") -> list[str]:
    """Where the present document does not hold what the recorded one did; more may be there."""
    if isinstance(then, dict) and isinstance(now, dict):
        return [
            found
            for name, value in then.items()
            if name not in PROSE
            for found in (missing(value, now[name], f"{at}.{name}") if name in now else [f"{at}.{name} is not there"])
        ]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        return [
            found
            for n, (one, other) in enumerate(zip(then, now, strict=True))
            for found in missing(one, other, f"{at}[{n}]")
        ]
    return [] if then == now else [f"{at} was {then!r} and is {now!r}"]


def test_tokens_and_passwords_are_good(opened: State) -> None:
    given = snapshot()["https"]["given"]
    adas = snapshot()["https"]["jobs"]["adas"]
    url = opened.crucible.discovery["url"]
    with httpx2.Client(base_url=url, verify=False, trust_env=False) as client:
        ada = {"Authorization": f"Bearer {given['ada']}"}
        jobs = client.get("/api/v1/jobs", headers=ada).raise_for_status().json()["items"]
        assert [(job["id"], job["project"], job["user"]) for job in jobs] == [(adas, "vision", "ada")]
        revoked = {"Authorization": f"Bearer {given['revoked']}"}
        assert client.get("/api/v1/jobs", headers=revoked).status_code == 401
        login = client.post("/api/v1/login", json={"name": "ada", "password": given["password"]}).raise_for_status()
        session = {"Authorization": f"Bearer {login.json()['token']}"}
        assert client.get(f"/api/v1/jobs/{adas}", headers=session).status_code == 200


def test_a_secret_still_has_its_value(opened: State) -> None:
    code = "import hashlib, os; print(hashlib.sha256(os.environ['TOKEN'].encode()).hexdigest())"
    job = opened.crucible.submit({"command": ["{python}", "-c", code], "secrets": {"TOKEN": "TOKEN"}, **SMALL})
    assert opened.crucible.wait(job, LONG)["status"] == "completed"
    value = hashlib.sha256(snapshot()["https"]["given"]["secret"].encode()).hexdigest()
    assert opened.crucible.log(job).decode() == f"{value}\n"


def test_a_hook_signs_with_its_old_secret(opened: State) -> None:
    given = snapshot()["https"]["given"]["hook"]
    path = f"/api/v1/projects/default/hooks/{given['id']}"
    with Receiver() as receiver, opened.crucible.client() as client:
        client.patch(path, json={"url": receiver.url("localhost")}).raise_for_status()
        client.post(f"{path}/test").raise_for_status()
        until(lambda: receiver.received, LONG, "the message")
        assert receiver.received[0].verified(given["secret"])


def test_a_job_that_ended_can_be_resumed(opened: State) -> None:
    crucible, job = opened.crucible, snapshot()["https"]["jobs"]["cancelled"]
    with crucible.client() as client:
        client.post(f"/api/v1/jobs/{job}/resume", json={}).raise_for_status()
    until(lambda: crucible.job(job)["attempt"] == 2 and crucible.log(job), LONG, "its first line")
    crucible.cancel(job)
    assert crucible.wait(job, LONG)["status"] == "cancelled"


def test_a_job_that_ended_can_be_run_again(opened: State) -> None:
    """Its bundle and what was recorded of it are all that is needed."""
    crucible, trained = opened.crucible, snapshot()["https"]["jobs"]["trained"]
    with crucible.client() as client:
        again = client.post(f"/api/v1/jobs/{trained}/rerun").raise_for_status().json()["id"]
    view = crucible.wait(again, LONG)
    assert (view["status"], view["rerun_of"]) == ("completed", trained)
    assert crucible.log(again).decode() == snapshot()["https"]["snapshot"]["jobs"][trained]["logs"]["1"]
