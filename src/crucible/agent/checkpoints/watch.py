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

from crucible.agent.checkpoints.listing import Entry
from crucible.agent.checkpoints.notes import Note

SETTLE_SECONDS = 2.0
FOLDER_SETTLE_SECONDS = 5.0
"""Longer than a file's: between two files of one folder a program may compute."""


class Program(enum.Enum):
    """What is known of the program after a look at its folder."""

    LIVES = "lives"
    ENDED = "ended"  # of its own will: exit code 0, or it obeyed a stop
    DIED = "died"  # killed, or it crashed


class How(enum.Enum):
    """Why an entry counts as whole."""

    NOTED = "noted"
    SETTLED = "settled"
    ENDED = "ended"
    MOVED_IN = "moved in"


@dataclass(frozen=True)
class Look:
    """The folder as it was between `began` and `done` (monotonic seconds)."""

    began: float
    done: float
    entries: tuple[Entry, ...]
    program: Program = Program.LIVES


@dataclass(frozen=True)
class Whole:
    """A checkpoint that may be taken, as long as its entry stays equal."""

    entry: Entry
    how: How
    note: Note | None = None


@dataclass(frozen=True)
class Known:
    """One name: what it was at the last look, unchanged since when, and whether that was told to be whole."""

    entry: Entry
    since: float
    told: bool = False


@dataclass(frozen=True)
class Watch:
    """Everything seen so far."""

    known: Mapping[str, Known] = field(default_factory=dict)

    @property
    def never_whole(self) -> tuple[str, ...]:
        """Names whose present content was never told to be whole."""
        return tuple(name for name, known in self.known.items() if not known.told)


def looked(watch: Watch, look: Look, notes: Sequence[Note] = ()) -> tuple[Watch, tuple[Whole, ...]]:
    """The watch after a look, and what is whole since, oldest first. `notes` were read before the look."""
    known: dict[str, Known] = {}
    found: list[Whole] = []
    for entry in look.entries:
        seen = _seen(watch.known.get(entry.name), entry, look)
        whole = None if seen.told else _whole(seen, look, notes)
        if whole is not None:
            found.append(whole)
        known[entry.name] = Known(entry, seen.since, seen.told or whole is not None)
    return Watch(known), tuple(sorted(found, key=lambda whole: (whole.entry.newest_ns, whole.entry.name)))


def ended_in_order(code: object, cause_is_ours: bool) -> bool:
    """Whether a program with this exit code (None: a signal ended it) could finish what it was writing.

    `cause_is_ours`: it was told to stop. One that a signal ended, even TERM, was cut off wherever it was.
    """
    return code == 0 or (cause_is_ours and code is not None)


def _seen(before: Known | None, entry: Entry, look: Look) -> Known:
    if before is not None and before.entry == entry:
        return before
    return Known(entry, look.done)


def _whole(seen: Known, look: Look, notes: Sequence[Note]) -> Whole | None:
    note = next((note for note in reversed(notes) if note.means(seen.entry)), None)
    if note is not None:
        return Whole(seen.entry, How.NOTED, note)
    if look.program is Program.ENDED:
        return Whole(seen.entry, How.ENDED)
    if look.program is Program.DIED and seen.entry.moved_in:
        return Whole(seen.entry, How.MOVED_IN)
    in_parts = seen.entry.is_folder and not seen.entry.moved_in
    settle = FOLDER_SETTLE_SECONDS if in_parts else SETTLE_SECONDS
    if look.program is Program.LIVES and look.began - seen.since >= settle:
        return Whole(seen.entry, How.SETTLED)
    return None
