"""How much of each fault a run takes, and where it writes down what it measured.

pytest tests/faults --scale prove --figures figures.jsonl
pytest tests/faults/test_kill9.py --scale kills=30,submits=5000
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

Record = Callable[..., None]


@dataclass(frozen=True)
class Scale:
    """The numbers of the rows of docs/reliability.md."""

    seeds: int = 200
    """Seeds of the simulation; scripts/test.sh runs as many."""
    kills: int = 10
    """kill -9 of a server under load."""
    submits: int = 500
    """Jobs acknowledged meanwhile, at least."""
    sweeps: int = 1
    """Times that every crash point of every backend is reached."""
    launches: int = 100
    """Machines launched through a faulty line to their provider, which knows tokens again for half of them."""
    lines: int = 100_000
    """Lines of output over cut lines to the server."""
    restarts: int = 3
    """PostgreSQL stopped and started under load."""
    kills_of_postgres: int = 1
    """Of these restarts: kill -9 of all its processes."""
    holders: int = 2
    """Servers killed while they hold a duty."""
    cuts: int = 20
    """Uploads of a checkpoint cut at a random byte."""
    cases: int = 50
    """Generated requests to each operation of the API."""
    archives: int = 500
    """Archives that are hostile by construction."""
    steps: int = 40
    """Steps of an explored history, and as many histories."""


TEST = Scale()
PROVE = Scale(
    seeds=10_000,
    kills=100,
    submits=50_000,
    sweeps=20,
    launches=2000,
    lines=1_000_000,
    restarts=30,
    kills_of_postgres=10,
    holders=20,
    cuts=2000,
    cases=1000,
    archives=10_000,
    steps=200,
)


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(
        "--scale", default="test", help="test, prove, and numbers of Scale: kills=30,cuts=200 or prove,cuts=200"
    )
    parser.addoption("--figures", type=Path, help="append what tests measured to this file, a JSON object a line")


def scale_of(config: pytest.Config) -> Scale:
    return parsed(str(config.getoption("--scale")))


def parsed(asked: str) -> Scale:
    """`test`, `prove`, `kills=30,cuts=200` or `prove,cuts=200`. Raises UsageError for what no Scale has."""
    named = {"test": TEST, "prove": PROVE}
    names = {field.name for field in fields(Scale)}
    base, *numbers = asked.split(",") if asked.split(",")[0] in named else ["test", *asked.split(",")]
    pairs = [word.partition("=") for word in numbers]
    if any(name not in names or not number.isdecimal() for name, _, number in pairs):
        raise pytest.UsageError(f"--scale {asked}: test, prove, and numbers of {', '.join(sorted(names))}")
    return replace(named[base], **{name: int(number) for name, _, number in pairs})


@pytest.fixture(scope="session")
def scale(request: pytest.FixtureRequest) -> Scale:
    return scale_of(request.config)


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """`record("kill -9 of the server", kills=10, lost=0)`: printed, and kept where that was asked for."""
    path = request.config.getoption("--figures")

    def write(row: str, **figures: object) -> None:
        print(row, *(f"{name}={value}" for name, value in figures.items()))
        if path is not None:
            with open(path, "a") as file:
                file.write(json.dumps({"row": row, "test": request.node.nodeid, **figures}) + "\n")

    return write
