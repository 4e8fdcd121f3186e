"""The results file: of each row what its last run measured, and of which commit."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.prove.environment import Machine, Source
from benchmarks.prove.figures import Measured
from crucible.core.errors import Trouble


class Result(BaseModel):
    """One run of one row. `problem` is empty when all of it held."""

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
        """The same with this result in place of the row's last one."""
        return Results(rows=dict(sorted({**self.rows, name: result}.items())))


def load(path: Path) -> Results:
    """Empty where there is no file. Raises Trouble for a damaged one."""
    try:
        return Results.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Results()
    except ValidationError as error:
        raise Trouble(
            f"The results in {path} cannot be read.",
            why=f"{error.error_count()} things are wrong in it, first: {_first(error)}.",
            fix=f"Bring back the last good one (git checkout -- {path}), or remove it and run the rows again.",
        ) from error


def save(path: Path, results: Results) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(results.model_dump_json(indent=1) + "\n")
    os.replace(part, path)


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in found["loc"])
    return f"{place}: {found['msg']}" if place else found["msg"]
