"""A result to change as a test needs it."""

from __future__ import annotations

from datetime import UTC, datetime

from benchmarks.prove.environment import Machine, Source
from benchmarks.prove.results import Result

RESULT = Result(
    began=datetime(2026, 11, 16, 12, tzinfo=UTC),
    seconds=61.0,
    source=Source(commit="0123456789abcdef", clean=True),
    machine=Machine(cores=2, memory_gib=7.8, python="3.12.1", kernel="Linux 6.1 x86_64"),
    scale="prove",
    exit_code=0,
    problem="",
    counts={"passed": 1},
    figures=(),
)
