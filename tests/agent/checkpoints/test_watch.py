"""Test when an entry of the checkpoint folder counts as whole."""

from __future__ import annotations

import pytest
from tests.agent.checkpoints.entries import file, folder

from crucible.agent.checkpoints.listing import CheckpointEntry
from crucible.agent.checkpoints.notes import SaveNote, read_note
from crucible.agent.checkpoints.watch import (
    FolderScan,
    FolderWatch,
    ProgramState,
    WholeEntry,
    WholeReason,
    ended_in_order,
    record_scan,
)

A1, A2 = file("a.pt", 1), file("a.pt", 2)


def look(at: float, *entries: CheckpointEntry, program: ProgramState = ProgramState.LIVES) -> FolderScan:
    return FolderScan(at, at + 0.01, entries, program)


def run(*looks: FolderScan, notes: tuple[SaveNote, ...] = ()) -> list[tuple[WholeEntry, ...]]:
    """Return the whole entries after each scan. The notes come with the last one."""
    watch, found = FolderWatch(), []
    for one in looks:
        watch, wholes = record_scan(watch, one, notes if one is looks[-1] else ())
        found.append(wholes)
    return found


def names(*looks: FolderScan, notes: tuple[SaveNote, ...] = ()) -> list[list[str]]:
    return [[whole.entry.name for whole in wholes] for wholes in run(*looks, notes=notes)]


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([look(0, A1), look(1.9, A1)], [[], []]),
        ([look(0, A1), look(2.0, A1)], [[], []]),  # the first look ended at 0.01
        ([look(0, A1), look(2.1, A1)], [[], ["a.pt"]]),
        ([look(0, A1), look(2.1, A1), look(9, A1)], [[], ["a.pt"], []]),
        ([look(0, A1), look(1.9, A2), look(3.8, A2), look(4, A2)], [[], [], [], ["a.pt"]]),
        ([look(0, A1), look(1), look(2.1, A1), look(3, A1)], [[], [], [], []]),
        ([look(0, A1), look(3, A1), look(4, A2), look(7, A2)], [[], ["a.pt"], [], ["a.pt"]]),
        ([look(0, folder("f", 1)), look(3, folder("f", 1)), look(6, folder("f", 1))], [[], [], ["f"]]),
        ([look(0, folder("f", 1)), look(4, folder("f", 1, 2)), look(6, folder("f", 1, 2))], [[], [], []]),
        ([look(0, folder("f", 1)), look(6, folder("f", 2))], [[], []]),
    ],
)
def test_what_has_not_changed_for_a_while_is_whole(looks: list[FolderScan], expected: list[list[str]]) -> None:
    assert names(*looks) == expected


def test_a_slow_look_counts_from_its_end_to_the_next_beginning() -> None:
    slow = FolderScan(0, 5, (A1,))
    assert names(slow, look(6.9, A1)) == [[], []]
    assert names(slow, look(7.1, A1)) == [[], ["a.pt"]]


def test_what_is_noted_is_whole_at_once() -> None:
    note = SaveNote("a.pt", 5, 0.5, inode=A1.inode, mtime_ns=A1.mtime_ns)
    assert run(look(0, A1), notes=(note,)) == [(WholeEntry(A1, WholeReason.NOTED, note),)]
    dead = look(0, A1, program=ProgramState.DIED)
    assert run(dead, notes=(note,)) == [(WholeEntry(A1, WholeReason.NOTED, note),)]


def test_a_note_is_about_one_content_of_a_name() -> None:
    older = SaveNote("a.pt", 5, inode=A1.inode, mtime_ns=A1.mtime_ns)
    newer = SaveNote("a.pt", 6, inode=A2.inode, mtime_ns=A2.mtime_ns)
    assert names(look(0, A2, program=ProgramState.DIED), notes=(older,)) == [[]]
    assert run(look(0, A2), notes=(older, newer)) == [(WholeEntry(A2, WholeReason.NOTED, newer),)]
    assert names(look(0, A2), notes=(SaveNote("b.pt", 5),)) == [[]]


def test_a_note_that_names_no_content_means_what_is_there() -> None:
    assert names(look(0, A1), notes=(SaveNote("a.pt", 5),)) == [["a.pt"]]


def test_a_program_that_ended_in_order_has_finished_its_files() -> None:
    assert names(look(0, A1), look(0.5, A1, folder("f", 1), program=ProgramState.ENDED)) == [[], ["f", "a.pt"]]


def test_the_last_words_of_a_program_that_died_are_not_believed() -> None:
    assert names(look(0, A1), look(9, A1, program=ProgramState.DIED)) == [[], []]
    watch, _ = record_scan(FolderWatch(), look(0, A1, program=ProgramState.DIED))
    assert watch.never_whole == ("a.pt",)
    settled_before = [look(0, A1), look(3, A1), look(4, A2, program=ProgramState.DIED)]
    assert names(*settled_before) == [[], ["a.pt"], []]


def test_the_oldest_comes_first() -> None:
    entries = [file("c", 1), file("a", 3), file("b", 2)]
    assert names(look(0, *entries, program=ProgramState.ENDED)) == [["c", "b", "a"]]


@pytest.mark.parametrize(
    ("code", "stopped", "in_order"),
    [(0, False, True), (0, True, True), (7, True, True), (7, False, False), (None, True, False), (None, False, False)],
)
def test_how_a_program_ends_in_order(code: int | None, stopped: bool, in_order: bool) -> None:
    assert ended_in_order(code, stopped) is in_order


@pytest.mark.parametrize(
    ("line", "note"),
    [
        (b'{"crucible":1,"checkpoint":"a","step":5,"metric":0.5}', SaveNote("a", 5, 0.5)),
        (b'{"crucible":1,"checkpoint":"a","step":null,"inode":3,"mtime_ns":4}', SaveNote("a", None, None, 3, 4)),
        (b'{"crucible":1,"checkpoint":"a","step":-1,"metric":NaN}', SaveNote("a")),
        (b'{"crucible":1,"checkpoint":"a","step":true,"metric":true}', SaveNote("a")),
        (b'{"crucible":1,"checkpoint":7}', None),
        (b'{"checkpoint":"a"}', None),
        (b'{"crucible":1,"metrics":{"loss":1}}', None),
        (b'{"crucible":1,"checkpoint":"a"', None),
        (b'["checkpoint"]', None),
    ],
)
def test_notes_in_the_report_file(line: bytes, note: SaveNote | None) -> None:
    assert read_note(line) == note
