"""A long row is done in pieces: an interruption costs one of them, and the rest is done by the next run.

What a piece measured counts only beside others of the very same commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from tests.scale import parsed

from benchmarks.prove import figures
from benchmarks.prove.environment import Source
from benchmarks.prove.results import Result
from benchmarks.prove.rows import Row


@dataclass(frozen=True)
class Piece:
    """The `number`th of a row's pieces. It takes `scale`; what it counts begins at `first`."""

    number: int
    of: int
    first: int
    scale: str


def pieces(row: Row, scale: str) -> tuple[Piece, ...]:
    """All of it in one piece, unless the row says of what how much is one."""
    if row.piece is None:
        return (Piece(1, 1, 1, scale),)
    name, size = row.piece
    whole = getattr(parsed(scale), name)
    starts = range(1, whole + 1, size)
    return tuple(
        Piece(number, len(starts), first, f"{scale},{name}={min(size, whole + 1 - first)}")
        for number, first in enumerate(starts, start=1)
    )


@dataclass(frozen=True)
class Kept:
    """The pieces of a row that held, in `folder`, until all of them are there."""

    folder: Path
    row: Row
    source: Source

    def load(self, piece: Piece) -> Result | None:
        """None where it has to be run: it never was, or did not hold, or was of another commit."""
        try:
            found = Result.model_validate_json(self._path(piece).read_bytes())
        except (OSError, ValidationError):
            return None
        return found if found.source == self.source and found.scale == piece.scale else None

    def save(self, piece: Piece, result: Result) -> None:
        if piece.of > 1 and self.source.clean and result.source == self.source and not result.problem:
            self._path(piece).write_text(result.model_dump_json())

    def forget(self) -> None:
        for path in self.folder.glob(f"{self.row.name}-piece-*.json"):
            path.unlink()

    def _path(self, piece: Piece) -> Path:
        return self.folder / f"{self.row.name}-piece-{piece.number}.json"


def together(results: Sequence[Result], scale: str) -> Result:
    """What the pieces of one row come to."""
    first = results[0]
    clean = all(each.source == first.source and each.source.clean for each in results)
    return first.model_copy(
        update={
            "seconds": round(sum(each.seconds for each in results), 1),
            "source": Source(commit=first.source.commit, clean=clean),
            "scale": scale,
            "exit_code": next((each.exit_code for each in results if each.exit_code), 0),
            "problem": "; ".join(dict.fromkeys(each.problem for each in results if each.problem)),
            "counts": figures.sum_of(each.counts for each in results),
            "figures": figures.together(measured for each in results for measured in each.figures),
        }
    )
