from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from crucible.core.errors import BadInput, UnknownName
from crucible.core.job.job_filter import JobFilter
from crucible.core.job.spec import Kind
from crucible.core.lifecycle import JobState


def test_without_a_field_every_job_fits() -> None:
    assert JobFilter().empty
    assert JobFilter().states() is None
    assert not JobFilter(active=True).empty


def test_several_values_are_repeated_or_have_commas_between() -> None:
    assert JobFilter(status=["queued,running", "failed", ""]).status == ("queued", "running", "failed")
    assert JobFilter(kind=["train,serve"]).kinds() == (Kind.TRAIN, Kind.SERVE)


def test_a_status_stands_for_its_states() -> None:
    assert JobFilter(status=["running"]).states() == {JobState.STARTING, JobState.RUNNING, JobState.STOPPING}
    assert JobFilter(status=["failed", "running"], active=True).states() == JobFilter(status=["running"]).states()
    assert JobFilter(status=["failed"], active=True).states() == frozenset()


@pytest.mark.parametrize("given", [{"status": ["complete"]}, {"kind": ["training"]}])
def test_an_unknown_name_gets_the_nearest(given: dict[str, Any]) -> None:
    wanted = JobFilter(**given)
    with pytest.raises(UnknownName, match="Did you mean"):
        wanted.states(), wanted.kinds()


def test_a_time_without_a_zone_is_in_utc() -> None:
    told = JobFilter(created_after="2026-11-15T10:00:00", created_before="1763200800")
    assert told.created_after == datetime(2026, 11, 15, 10, tzinfo=UTC)
    assert told.created_before == datetime(2025, 11, 15, 10, tzinfo=UTC)
    east = JobFilter(created_after="2026-11-15T10:00:00+02:00").created_after
    assert east == datetime(2026, 11, 15, 10, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    "given",
    [
        {"name": ""},
        {"name": "x" * 201},
        {"name": "a\x00"},
        {"name": "\ud800"},
        {"text": 7},
        {"text": "\x00"},
        {"status": "queued"},
        {"status": [None]},
        {"status": ["s"] * 21},
        {"backend": ["b" * 101]},
        {"tag": [""]},
        {"tag": ["t"] * 21},
        {"created_after": "yesterday"},
        {"created_before": "nan"},
        {"statuses": ["queued"]},
        {"active": "perhaps"},
    ],
)
def test_what_is_out_of_bounds_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        JobFilter.model_validate(given)


def test_a_tag_that_is_none_is_refused_when_it_is_read() -> None:
    with pytest.raises(BadInput):
        _ = JobFilter(tag=["=x"]).tags
