"""The results file: the last run of each row, with its commit."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.prove.environment import Machine, Source
from benchmarks.prove.figures import Measured
from crucible.core.errors import Trouble


class Result(BaseModel):
    """One run of one row. `problem` is empty if it held."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    began: datetime
    seconds: float
    source: Source
    machine: Machine
    scale: str
    exit_code: int
    problem: str
    counts: dict[str, int]
    figures: tuple[Measured, ...]


class Results(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: dict[str, Result] = {}

    def having(self, name: str, result: Result) -> Results:
        """Return a copy with this result as the row's last one."""
        return Results(rows=dict(sorted({**self.rows, name: result}.items())))


def load(path: Path) -> Results:
    """Return the stored results, empty without a file. Raises Trouble for a damaged file."""
    try:
        return Results.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Results()
    except ValidationError as error:
        raise Trouble(
            f"The results in {path} are damaged.",
            why=f"It has {error.error_count()} errors, the first: {_first(error)}.",
            fix=f"Restore the last good version (git checkout -- {path}), or delete it and run the rows again.",
        ) from error


def save(path: Path, results: Results) -> None:
    """Write the results atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(results.model_dump_json(indent=1) + "\n")
    os.replace(part, path)


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in found["loc"])
    return f"{place}: {found['msg']}" if place else found["msg"]
