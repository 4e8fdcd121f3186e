from __future__ import annotations

import pytest

from crucible.core.job.comparison import ComparedJob, SeriesSummary, Value, compare_jobs, parse_arguments


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (("{python}", "a.py", "--lr", "0.1"), {"lr": "0.1", "command": "python a.py"}),
        (("a", "--lr=0.1", "--amp", "--n", "-3", "x"), {"lr": "0.1", "amp": True, "n": "-3", "command": "a x"}),
        (("a", "--", "b", "-v"), {"command": "a -- b -v"}),
        (("a", "--last"), {"last": True, "command": "a"}),
        ((), {"command": ""}),
    ],
)
def test_arguments_are_read_as_they_were_said(command: tuple[str, ...], found: dict[str, Value]) -> None:
    assert parse_arguments(command) == found


def test_the_best_is_the_lowest_loss_and_the_highest_accuracy() -> None:
    jobs = [
        ComparedJob(
            {},
            {"loss": SeriesSummary(0.5, 0.1, 2.0), "acc": SeriesSummary(0.7, 0.1, 0.9), "lr": SeriesSummary(1, 1, 1)},
        ),
        ComparedJob({}, {"loss": SeriesSummary(0.4, 0.2, 2.0), "acc": SeriesSummary(0.6, 0.1, 0.95)}),
    ]
    found = compare_jobs(jobs)
    best = {line.name: (line.values, line.winner) for line in found.best}
    assert best == {"loss": ((0.1, 0.2), 0), "acc": ((0.9, 0.95), 1)}
    last = {line.name: (line.values, line.winner) for line in found.last}
    assert last == {"loss": ((0.5, 0.4), 1), "acc": ((0.7, 0.6), 0), "lr": ((1, None), None)}


def test_equals_have_no_winner_and_do_not_differ() -> None:
    [line] = compare_jobs([ComparedJob({}, {"loss": SeriesSummary(1, 1, 1)})] * 2).last
    assert (line.winner, line.differs) == (None, False)


def test_what_only_one_has_differs() -> None:
    [line] = compare_jobs([ComparedJob({"tier": "GPU_SMALL"}, {}), ComparedJob({}, {})]).config
    assert (line.name, line.values, line.differs) == ("tier", ("GPU_SMALL", None), True)
