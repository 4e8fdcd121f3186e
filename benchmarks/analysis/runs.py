"""Published training runs: the model, the hardware, the run time and the source."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

PUBLISHED = Path(__file__).parent / "published"
PARTS = ("fitted", "held out", "fresh")


@dataclass(frozen=True)
class Run:
    """`program` is a file of `published/` with its arguments; `hours` is what was published.

    `fitted`: the constants of the model of time were set with it. `fresh`: it was found when the model stood, so not
    even its form was chosen with it.
    """

    name: str
    program: str
    gpu: str
    gpus: int
    hours: float
    source: str
    date: str
    fitted: bool = False
    fresh: bool = False
    note: str = ""

    @property
    def part(self) -> str:
        return "fitted" if self.fitted else "fresh" if self.fresh else "held out"

    @property
    def file(self) -> str:
        return self.program.split()[0]

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(self.program.split()[1:])


def runs(path: Path = PUBLISHED / "runs.toml") -> list[Run]:
    with path.open("rb") as file:
        return [Run(**row) for row in tomllib.load(file)["run"]]
