"""Runs a row and says what became of it."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.scale import parsed

from benchmarks.prove import figures
from benchmarks.prove.circumstances import Source, this_machine, this_source
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

    def run(self, row: Row) -> Result:
        """Raises KeyboardInterrupt when interrupted; nothing is known then."""
        began, before, started = datetime.now(UTC), this_source(self.root), time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._figures(row).unlink(missing_ok=True)
        ran = [self._perform(row, number, command) for number, command in enumerate(row.commands, start=1)]
        seconds, after = time.monotonic() - started, this_source(self.root)
        measured, unreadable = self._measured(row)
        return Result(
            began=began.replace(microsecond=0),
            seconds=round(seconds, 1),
            source=Source(commit=before.commit, clean=before.clean and before == after),
            machine=this_machine(),
            scale=self.scale,
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

    def _perform(self, row: Row, number: int, command: Command) -> Ran:
        log = self.folder / f"{row.name}-{number}.log"
        code = perform(self._words(row, command), self.root, log)
        return Ran(code, figures.counts(log.read_text()))

    def _words(self, row: Row, command: Command) -> list[str]:
        """The programs are those of this very environment."""
        program = sys.executable if command[0] == "python" else str(Path(sys.executable).with_name(command[0]))
        given = {"scale": self.scale, "figures": self._figures(row), **asdict(parsed(self.scale))}
        return [program, *(word.format_map(given) for word in command[1:])]

    def _figures(self, row: Row) -> Path:
        return self.folder / f"{row.name}.jsonl"
