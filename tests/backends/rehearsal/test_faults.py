"""Test the faults of the cloud: what customers see, and what really happened."""

from __future__ import annotations

import time

import pytest
from tests.backends.rehearsal.place import Cloud

from crucible.backends.rehearsal.cloud.faults import BadFault, Faults, SeededChance
from crucible.backends.rehearsal.connection import Connection, ErrorAnswer, NoAnswer


def test_a_lost_answer_is_a_504_or_a_cut_connection_and_the_instance_is_there(cloud: Cloud) -> None:
    cloud.faults(lost_answers=1)
    with pytest.raises(ErrorAnswer) as caught:
        cloud.create()
    assert (caught.value.status, caught.value.code) == (504, "gateway_timeout")
    with pytest.raises(NoAnswer):
        cloud.create()
    assert len(cloud.alive()) == 2


def test_a_lost_request_made_nothing(cloud: Cloud) -> None:
    cloud.faults(lost_requests=1)
    with pytest.raises(NoAnswer):
        cloud.create()
    assert cloud.census() == {}


def test_a_failed_terminate_ends_nothing(cloud: Cloud) -> None:
    id = cloud.running()["id"]
    cloud.faults(terminate_errors=1)
    assert cloud.refusal("DELETE", f"/v1/instances/{id}") == (500, "internal_error")
    assert cloud.census()[id]["state"] == "running"


def test_storms_say_when_to_come_back_and_spare_bill_and_admin(cloud: Cloud) -> None:
    cloud.faults(throttled=1, retry_after=9)
    with pytest.raises(ErrorAnswer) as caught:
        cloud.listed()
    assert (caught.value.status, caught.value.retry_after) == (429, "9")
    cloud.faults(throttled=0, unavailable=1)
    assert cloud.refusal("GET", "/v1/offers") == (503, "service_unavailable")
    assert cloud.refusal("POST", "/v1/instances", {}) == (503, "service_unavailable")
    assert cloud.bill() == {}
    cloud.call("DELETE", "/admin/faults")
    assert cloud.listed() == []


def test_a_slow_call_runs_into_the_callers_deadline(cloud: Cloud) -> None:
    cloud.faults(slow=1, slow_seconds=30)
    short_timeout = Connection(cloud.state, seconds=0.2)
    began = time.monotonic()
    with pytest.raises(NoAnswer):
        short_timeout.call("GET", "/v1/regions")
    assert time.monotonic() - began < 10


def test_half_of_them_is_about_half_and_the_same_with_the_same_seed() -> None:
    assert _throws(3) == _throws(3)
    assert 400 < sum(_throws(3)) < 600
    assert _throws(3) != _throws(4)


def _throws(seed: int) -> list[bool]:
    dice = SeededChance(seed)
    return [dice.happens(0.5) for _ in range(1000)]


@pytest.mark.parametrize(
    "wish",
    [
        {"typo": 1},
        {"lost_answers": 1.5},
        {"lost_answers": -0.1},
        {"list_lag": "long"},
        {"list_lag": None},
        {"list_lag": float("nan")},
        {"tokens_honoured": 1},
        {"slow": True},
    ],
)
def test_nonsense_is_refused(wish: dict[str, object]) -> None:
    with pytest.raises(BadFault):
        Faults().changed(wish)


def test_some_faults_may_be_nothing() -> None:
    changed = Faults().changed({"boot_seconds": None, "reclaim_notice": None})
    assert (changed.boot_seconds, changed.reclaim_notice) == (None, None)


def test_a_bad_fault_changes_nothing(cloud: Cloud) -> None:
    before = cloud.call("GET", "/admin/faults")
    assert cloud.refusal("PATCH", "/admin/faults", {"list_lag": 5, "typo": 1}) == (400, "invalid_parameter")
    after = cloud.call("GET", "/admin/faults")
    assert after["list_lag"] == before["list_lag"]
