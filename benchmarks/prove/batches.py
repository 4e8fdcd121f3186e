"""Split a long row into pieces, so that an interruption loses at most one and the next run does the rest.

Results of pieces are combined only if they are of the same commit.
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
    """One piece of a row, of the size `scale`; its counting starts at `first`."""

    number: int
    of: int
    first: int
    scale: str


def pieces(row: Row, scale: str) -> tuple[Piece, ...]:
    """Return the row's pieces: one, unless the row defines which number to split and by how much."""
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
    """The passed pieces of a row, kept in `folder` until all are done."""

    folder: Path
    row: Row
    source: Source

    def load(self, piece: Piece) -> Result | None:
        """Return the piece's result; None if it never ran, failed, or ran at another commit."""
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
    """Combine the results of a row's pieces."""
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
