"""Decide which entries of the checkpoint folder are whole, that is complete. Pure: scans in, whole entries out.

An entry is whole when `crucible.checkpoint.save` noted it, when it has not changed for a while under a running program,
or when the program ended in order. If the program was killed or crashed, what it wrote in its last moments is whole
only if it was noted, or renamed into the folder. A name that is written again is a new checkpoint.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crucible.agent.checkpoints.listing import CheckpointEntry
from crucible.agent.checkpoints.notes import SaveNote

SETTLE_SECONDS = 2.0
FOLDER_SETTLE_SECONDS = 5.0
"""Longer than for a file: a program may compute between two files of one folder."""


class ProgramState(enum.Enum):
    """The state of the program after a scan."""

    LIVES = "lives"
    ENDED = "ended"  # exit code 0, or it obeyed a stop
    DIED = "died"  # killed, or it crashed


class WholeReason(enum.Enum):
    """Why an entry counts as whole."""

    NOTED = "noted"
    SETTLED = "settled"
    ENDED = "ended"
    MOVED_IN = "moved in"


@dataclass(frozen=True)
class FolderScan:
    """The folder as listed between `began` and `done` (monotonic seconds)."""

    began: float
    done: float
    entries: tuple[CheckpointEntry, ...]
    program: ProgramState = ProgramState.LIVES


@dataclass(frozen=True)
class WholeEntry:
    """A checkpoint that may be uploaded, as long as its entry stays equal."""

    entry: CheckpointEntry
    how: WholeReason
    note: SaveNote | None = None


@dataclass(frozen=True)
class EntryState:
    """One name: its entry in the last scan, since when it is unchanged, and whether it was returned as whole."""

    entry: CheckpointEntry
    since: float
    is_whole: bool = False


@dataclass(frozen=True)
class FolderWatch:
    """The state of every name in the folder."""

    known: Mapping[str, EntryState] = field(default_factory=dict)

    @property
    def never_whole(self) -> tuple[str, ...]:
        """Names whose present content never became whole."""
        return tuple(name for name, known in self.known.items() if not known.is_whole)


def record_scan(
    watch: FolderWatch, scan: FolderScan, notes: Sequence[SaveNote] = ()
) -> tuple[FolderWatch, tuple[WholeEntry, ...]]:
    """Return the watch after a scan, and the entries that became whole, oldest first.

    `notes` must have been read before the scan.
    """
    known: dict[str, EntryState] = {}
    found: list[WholeEntry] = []
    for entry in scan.entries:
        state = _entry_state(watch.known.get(entry.name), entry, scan)
        whole = None if state.is_whole else _whole(state, scan, notes)
        if whole is not None:
            found.append(whole)
        known[entry.name] = EntryState(entry, state.since, state.is_whole or whole is not None)
    return FolderWatch(known), tuple(sorted(found, key=lambda whole: (whole.entry.newest_ns, whole.entry.name)))


def ended_in_order(code: object, cause_is_ours: bool) -> bool:
    """Return whether a program with this exit code (None: a signal ended it) could finish what it was writing.

    `cause_is_ours`: the runner stopped it. A signal, even SIGTERM, ends a program in the middle of a write.
    """
    return code == 0 or (cause_is_ours and code is not None)


def _entry_state(before: EntryState | None, entry: CheckpointEntry, scan: FolderScan) -> EntryState:
    if before is not None and before.entry == entry:
        return before
    return EntryState(entry, scan.done)


def _whole(state: EntryState, scan: FolderScan, notes: Sequence[SaveNote]) -> WholeEntry | None:
    note = next((note for note in reversed(notes) if note.means(state.entry)), None)
    if note is not None:
        return WholeEntry(state.entry, WholeReason.NOTED, note)
    if scan.program is ProgramState.ENDED:
        return WholeEntry(state.entry, WholeReason.ENDED)
    if scan.program is ProgramState.DIED and state.entry.moved_in:
        return WholeEntry(state.entry, WholeReason.MOVED_IN)
    in_parts = state.entry.is_folder and not state.entry.moved_in
    settle = FOLDER_SETTLE_SECONDS if in_parts else SETTLE_SECONDS
    if scan.program is ProgramState.LIVES and scan.began - state.since >= settle:
        return WholeEntry(state.entry, WholeReason.SETTLED)
    return None
