"""Where a job may go: the place asked for, then those it falls back to, in the user's order."""

from __future__ import annotations

from crucible.core.spec import JobSpec

DEFAULT_PLACE = "local"


def places_of(spec: JobSpec) -> tuple[str, ...]:
    """Every place the job may run at, the first choice first."""
    return tuple(dict.fromkeys((spec.backend or DEFAULT_PLACE, *spec.fallback)))


def place_after(spec: JobSpec, place: str) -> str:
    """Where to go when `place` failed the job: the next in line, or the same again after the last.

    A place that is not in line (somebody moved the job there) is kept.
    """
    line = places_of(spec)
    if place not in line:
        return place
    return line[min(line.index(place) + 1, len(line) - 1)]
