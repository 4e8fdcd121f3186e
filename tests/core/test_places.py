from __future__ import annotations

from crucible.core.places import DEFAULT_PLACE, place_after, places_of
from crucible.core.spec import JobSpec


def spec(backend: str | None = None, *fallback: str) -> JobSpec:
    return JobSpec(command=("true",), backend=backend, fallback=fallback)


def test_without_a_wish_a_job_is_for_this_computer() -> None:
    assert places_of(spec()) == (DEFAULT_PLACE,)


def test_the_line_is_the_users_own_each_place_once() -> None:
    assert places_of(spec("rehearsal", "local", "rehearsal")) == ("rehearsal", "local")


def test_after_a_place_failed_comes_the_next_and_the_last_is_kept() -> None:
    line = spec("a", "b", "c")
    assert [place_after(line, here) for here in ("a", "b", "c")] == ["b", "c", "c"]


def test_a_place_outside_the_line_is_kept() -> None:
    assert place_after(spec("a", "b"), "z") == "z"
