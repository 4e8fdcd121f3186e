"""Which names of the checkpoint folder are whole now. Pure: looks at the folder go in, whole entries come out.

A file or folder is whole when `crucible.checkpoint.save` noted it, when it has not changed for a while under a
living program, or when the program ended in order. Of what a program that was killed or crashed wrote in its
last moments only that is whole which it had noted, or had renamed into the folder. A name that is written
again is another checkpoint.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crucible.agent.checkpoints.listing import CheckpointEntry
from crucible.agent.checkpoints.notes import SaveNote

SETTLE_SECONDS = 2.0
FOLDER_SETTLE_SECONDS = 5.0
"""Longer than a file's: between two files of one folder a program may compute."""


class ProgramState(enum.Enum):
    """What is known of the program after a look at its folder."""

    LIVES = "lives"
    ENDED = "ended"  # of its own will: exit code 0, or it obeyed a stop
    DIED = "died"  # killed, or it crashed


class WholeReason(enum.Enum):
    """Why an entry counts as whole."""

    NOTED = "noted"
    SETTLED = "settled"
    ENDED = "ended"
    MOVED_IN = "moved in"


@dataclass(frozen=True)
class FolderScan:
    """The folder as it was between `began` and `done` (monotonic seconds)."""

    began: float
    done: float
    entries: tuple[CheckpointEntry, ...]
    program: ProgramState = ProgramState.LIVES


@dataclass(frozen=True)
class WholeEntry:
    """A checkpoint that may be taken, as long as its entry stays equal."""

    entry: CheckpointEntry
    how: WholeReason
    note: SaveNote | None = None


@dataclass(frozen=True)
class EntryState:
    """One name: what it was at the last look, unchanged since when, and whether that was told to be whole."""

    entry: CheckpointEntry
    since: float
    told: bool = False


@dataclass(frozen=True)
class FolderWatch:
    """Everything seen so far."""

    known: Mapping[str, EntryState] = field(default_factory=dict)

    @property
    def never_whole(self) -> tuple[str, ...]:
        """Names whose present content was never told to be whole."""
        return tuple(name for name, known in self.known.items() if not known.told)


def record_scan(
    watch: FolderWatch, look: FolderScan, notes: Sequence[SaveNote] = ()
) -> tuple[FolderWatch, tuple[WholeEntry, ...]]:
    """The watch after a look, and what is whole since, oldest first. `notes` were read before the look."""
    known: dict[str, EntryState] = {}
    found: list[WholeEntry] = []
    for entry in look.entries:
        seen = _seen(watch.known.get(entry.name), entry, look)
        whole = None if seen.told else _whole(seen, look, notes)
        if whole is not None:
            found.append(whole)
        known[entry.name] = EntryState(entry, seen.since, seen.told or whole is not None)
    return FolderWatch(known), tuple(sorted(found, key=lambda whole: (whole.entry.newest_ns, whole.entry.name)))


def ended_in_order(code: object, cause_is_ours: bool) -> bool:
    """Whether a program with this exit code (None: a signal ended it) could finish what it was writing.

    `cause_is_ours`: it was told to stop. One that a signal ended, even TERM, was cut off wherever it was.
    """
    return code == 0 or (cause_is_ours and code is not None)


def _seen(before: EntryState | None, entry: CheckpointEntry, look: FolderScan) -> EntryState:
    if before is not None and before.entry == entry:
        return before
    return EntryState(entry, look.done)


def _whole(seen: EntryState, look: FolderScan, notes: Sequence[SaveNote]) -> WholeEntry | None:
    note = next((note for note in reversed(notes) if note.means(seen.entry)), None)
    if note is not None:
        return WholeEntry(seen.entry, WholeReason.NOTED, note)
    if look.program is ProgramState.ENDED:
        return WholeEntry(seen.entry, WholeReason.ENDED)
    if look.program is ProgramState.DIED and seen.entry.moved_in:
        return WholeEntry(seen.entry, WholeReason.MOVED_IN)
    in_parts = seen.entry.is_folder and not seen.entry.moved_in
    settle = FOLDER_SETTLE_SECONDS if in_parts else SETTLE_SECONDS
    if look.program is ProgramState.LIVES and look.began - seen.since >= settle:
        return WholeEntry(seen.entry, WholeReason.SETTLED)
    return None
