"""Runs a row and says what became of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.scale import parsed

from benchmarks.prove import figures
from benchmarks.prove.batches import Kept, Piece, pieces, together
from benchmarks.prove.environment import Source, this_machine, this_source
from benchmarks.prove.figures import Measured
from benchmarks.prove.process import AT_MOST, OUT_OF_TIME, perform
from benchmarks.prove.results import Result
from benchmarks.prove.rows import Command, Row
from crucible.core.errors import Trouble

DONE = ("passed", "seeds")
"""Counts that say that something was done at all."""


@dataclass(frozen=True)
class Ran:
    exit_code: int
    counts: dict[str, int]

    @property
    def problem(self) -> str:
        if self.exit_code == OUT_OF_TIME:
            return f"not done after {AT_MOST / 3600:g} hours"
        if self.exit_code:
            return f"exit code {self.exit_code}"
        if not any(self.counts.get(name) for name in DONE):
            return "nothing was run"
        skipped = self.counts.get("skipped")
        return f"{skipped} skipped" if skipped else ""


@dataclass(frozen=True)
class Runner:
    """Logs and figures of the runs go to `folder`, where the last one's are kept."""

    root: Path
    folder: Path
    scale: str = "prove"
    say: Callable[[str], None] = print

    def run(self, row: Row) -> Result:
        """Raises KeyboardInterrupt when interrupted; the pieces that were done by then are not run again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = Kept(self.folder, row, this_source(self.root))
        results = [self._piece(row, piece, kept) for piece in pieces(row, self.scale)]
        kept.forget()
        return together(results, self.scale)

    def _piece(self, row: Row, piece: Piece, kept: Kept) -> Result:
        known = kept.load(piece)
        if piece.of > 1:
            self.say(f"-- piece {piece.number} of {piece.of}{': done before' if known else ''}")
        if known is not None:
            return known
        result = self._run(row, piece)
        kept.save(piece, result)
        return result

    def _run(self, row: Row, piece: Piece) -> Result:
        began, before, started = datetime.now(UTC), this_source(self.root), time.monotonic()
        self._figures(row).unlink(missing_ok=True)
        ran = [self._perform(row, piece, number, command) for number, command in enumerate(row.commands, start=1)]
        seconds, after = time.monotonic() - started, this_source(self.root)
        measured, unreadable = self._measured(row)
        return Result(
            began=began.replace(microsecond=0),
            seconds=round(seconds, 1),
            source=Source(commit=before.commit, clean=before.clean and before == after),
            machine=this_machine(),
            scale=piece.scale,
            exit_code=next((each.exit_code for each in ran if each.exit_code), 0),
            problem="; ".join(filter(None, (*(each.problem for each in ran), unreadable))),
            counts=figures.sum_of(each.counts for each in ran),
            figures=measured,
        )

    def _measured(self, row: Row) -> tuple[tuple[Measured, ...], str]:
        """With what was wrong with it."""
        try:
            return figures.read(self._figures(row)), ""
        except Trouble as error:
            return (), str(error)

    def _perform(self, row: Row, piece: Piece, number: int, command: Command) -> Ran:
        log = self.folder / f"{row.name}-{piece.number}-{number}.log"
        code = perform(self._words(row, piece, command), self.root, log)
        return Ran(code, figures.counts(log.read_text()))

    def _words(self, row: Row, piece: Piece, command: Command) -> list[str]:
        """The programs are those of this very environment."""
        program = sys.executable if command[0] == "python" else str(Path(sys.executable).with_name(command[0]))
        given = {"figures": self._figures(row), **asdict(piece), **asdict(parsed(piece.scale))}
        return [program, *(word.format_map(given) for word in command[1:])]

    def _figures(self, row: Row) -> Path:
        return self.folder / f"{row.name}.jsonl"
