from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crucible.core.job.retention import DAY, Checkpoint, EndedJob, format_age, keep_checkpoints, prune_jobs
from crucible.core.job.spec import KeepPolicy


def kept(rows: list[Checkpoint], needed: tuple[str, ...] = (), **rules: object) -> dict[str, str]:
    """Ids that stay, with why."""
    keeping = KeepPolicy(**{"latest": 1, "best": 0, **rules})  # type: ignore[arg-type]
    return {v.id: v.why for v in keep_checkpoints(rows, keeping, needed) if v.kept}


def steps(*numbers: int, **more: object) -> list[Checkpoint]:
    return [Checkpoint(f"c{n}", step=n, **more) for n in numbers]  # type: ignore[arg-type]


def scored(*metrics: float | None) -> list[Checkpoint]:
    return [Checkpoint(f"c{n}", metric=metric) for n, metric in enumerate(metrics)]


def test_nothing_stays_nothing() -> None:
    assert keep_checkpoints([], KeepPolicy()) == []


def test_the_newest_stay() -> None:
    assert kept(steps(1, 2, 3, 4), latest=2) == {"c4": "the newest", "c3": "one of the 2 newest"}


def test_the_best_stays_however_old() -> None:
    assert kept(scored(0.9, 0.1, 0.5, 0.7), best=1) == {"c1": "the best", "c3": "the newest"}
    assert set(kept(scored(0.9, 0.1, 0.5, 0.7), best=1, higher_is_better=True)) == {"c0", "c3"}
    assert set(kept(scored(0.3, 0.1, 0.2, 0.7), best=2)) == {"c1", "c2", "c3"}


def test_of_equals_the_newer_is_the_best_and_what_is_no_number_never_is() -> None:
    assert set(kept(scored(0.5, 0.5, None, float("nan"), 9.0), best=1)) == {"c1", "c4"}


def test_one_every_so_many_steps() -> None:
    assert set(kept(steps(5, 10, 12, 19, 21, 30, 33), every=10)) == {"c10", "c21", "c30", "c33"}


def test_what_an_attempt_starts_from_stays() -> None:
    assert kept(steps(1, 2, 3), ("c1",)) == {"c3": "the newest", "c1": "an attempt starts from it"}


def test_every_rank_has_its_own_newest() -> None:
    rows = [*steps(1, 2), Checkpoint("other", rank=1, step=1)]
    assert set(kept(rows)) == {"c2", "other"}


def test_what_goes_says_what_would_have_stayed() -> None:
    verdicts = keep_checkpoints(steps(1, 2), KeepPolicy(latest=1, best=1, every=100))
    assert verdicts[0].why == "only the newest, the best and one every 100 steps are kept"
    assert keep_checkpoints(steps(1, 2), KeepPolicy(latest=1, best=0))[0].why == "only the newest are kept"


_CHECKPOINTS = st.lists(
    st.builds(
        Checkpoint,
        id=st.uuids().map(str),
        rank=st.integers(0, 2),
        step=st.none() | st.integers(0, 1000),
        metric=st.none() | st.floats(),
    ),
    unique_by=lambda row: row.id,
)
_KEEPING = st.builds(
    KeepPolicy,
    latest=st.integers(1, 5),
    best=st.integers(0, 3),
    every=st.none() | st.integers(1, 100),
    higher_is_better=st.booleans(),
)


@given(_CHECKPOINTS, _KEEPING)
def test_the_newest_of_every_rank_always_stays_and_judging_again_changes_nothing(
    rows: list[Checkpoint], keeping: KeepPolicy
) -> None:
    verdicts = keep_checkpoints(rows, keeping)
    assert [verdict.id for verdict in verdicts] == [row.id for row in rows]
    staying = [row for row, verdict in zip(rows, verdicts, strict=True) if verdict.kept]
    newest = {row.rank: row.id for row in rows}
    assert set(newest.values()) <= {row.id for row in staying}
    assert all(verdict.kept for verdict in keep_checkpoints(staying, keeping))


def test_old_jobs_go_and_live_ones_never() -> None:
    now = 100 * DAY
    rows = [
        EndedJob("old", True, now - 31 * DAY),
        EndedJob("young", True, now - 29 * DAY),
        EndedJob("live", False, None),
        EndedJob("reopened", False, now - 40 * DAY),
        EndedJob("billing", True, now - 40 * DAY, busy=True),
    ]
    verdicts = {v.id: v for v in prune_jobs(rows, 30 * DAY, now)}
    assert [v.id for v in verdicts.values() if not v.kept] == ["old"]
    assert verdicts["old"].why == "it ended 31 days ago, longer than 30 days"
    assert verdicts["live"].why == "it has not ended"
    assert "machine" in verdicts["billing"].why


def test_ages_are_shown_in_their_largest_unit() -> None:
    assert [format_age(s) for s in (0, 59, 60, 7200, DAY, 30 * DAY)] == [
        "0 s",
        "59 s",
        "1 minute",
        "2 hours",
        "1 day",
        "30 days",
    ]
