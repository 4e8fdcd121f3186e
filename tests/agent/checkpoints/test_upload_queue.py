"""Test which checkpoint is stored next."""

from __future__ import annotations

from tests.agent.checkpoints.entries import file

from crucible.agent.checkpoints.notes import SaveNote
from crucible.agent.checkpoints.upload_queue import SHORT_BYTES, SHORT_COUNT, Mode, UploadQueue
from crucible.agent.checkpoints.watch import WholeEntry, WholeReason

LARGE = SHORT_BYTES


def waiting(*names: str, size: int = 10, metrics: dict[str, float] | None = None) -> UploadQueue:
    found = UploadQueue()
    for name in names:
        metric = (metrics or {}).get(name)
        note = None if metric is None else SaveNote(name, None, metric)
        found = found.offer(WholeEntry(file(name, size=size), WholeReason.NOTED, note))
    return found


def order(found: UploadQueue, mode: Mode) -> list[str]:
    """Return the names in the order in which they would be stored."""
    names = []
    while (candidate := found.next(mode)) is not None:
        names.append(candidate.name)
        found = found.stored(candidate)
    return names


def test_while_little_waits_everything_is_stored_in_its_order() -> None:
    assert order(waiting("a", "b", "c"), Mode.RUNNING) == ["a", "b", "c"]


def test_when_much_waits_only_the_newest_is_stored() -> None:
    assert order(waiting("a", "b", "c", size=LARGE), Mode.RUNNING) == ["c"]
    assert order(waiting("a", size=LARGE), Mode.RUNNING) == ["a"]
    many = [str(number) for number in range(SHORT_COUNT + 1)]
    assert order(waiting(*many), Mode.RUNNING) == [many[-1]]


def test_the_lowest_and_the_highest_metric_are_stored_too() -> None:
    metrics = {"a": 0.5, "b": 0.1, "c": 0.9, "d": 0.4, "e": 0.2}
    assert order(waiting(*"abcdef", size=LARGE, metrics=metrics), Mode.RUNNING) == ["b", "c", "f"]


def test_at_the_end_everything_is_stored() -> None:
    assert order(waiting("a", "b", "c", size=LARGE), Mode.ENDED) == ["a", "b", "c"]


def test_in_a_hurry_the_newest_is_all() -> None:
    assert order(waiting("a", "b", "c"), Mode.HURRY) == ["c"]


def test_what_is_written_again_waits_once_and_is_new() -> None:
    found = waiting("a", "b", "a")
    assert order(found, Mode.ENDED) == ["b", "a"]
    assert found.offered == 3


def test_one_that_cannot_be_stored_does_not_keep_others_from_it() -> None:
    found = waiting("a", "b", "c")
    last = found.next(Mode.HURRY)
    assert last is not None
    assert order(found.without(last), Mode.ENDED) == ["a", "b"]


def test_step_and_metric_come_from_the_note_and_else_the_name() -> None:
    noted = UploadQueue().offer(WholeEntry(file("step-5"), WholeReason.NOTED, SaveNote("step-5", 6, 0.5))).candidates[0]
    assert (noted.step, noted.metric) == (6, 0.5)
    stepless = (
        UploadQueue().offer(WholeEntry(file("step-5"), WholeReason.NOTED, SaveNote("step-5", None, 0.5))).candidates[0]
    )
    assert stepless.step == 5
    plain = UploadQueue().offer(WholeEntry(file("last.pt"), WholeReason.SETTLED)).candidates[0]
    assert (plain.step, plain.metric) == (None, None)
