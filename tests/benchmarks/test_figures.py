"""The figures at a small size: that each is measured on a real server, told, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.figures import command
from benchmarks.figures.figure import Figure, median, percentile

SMALL = ("--times", "1", "--submits", "3", "--lines", "200", "--sockets", "5", "--events", "2", "--plans", "2")


NAMES = {
    ("starts", "commands"): ["server ready", "server idle", "crucible --help", "crucible status"],
    ("submits", "sockets", "search"): ["durable submit, p50", "an event to 5 sockets, p99", "search 200 lines"],
    ("plans",): [
        "choice of 1,796 offers, p95",
        "a plan while typing, p95",
        "a plan of 2,000 lines, p95",
    ],
}


@pytest.mark.enable_socket
@pytest.mark.parametrize("only", NAMES, ids="-".join)
def test_figures_are_measured_told_and_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], only: tuple[str, ...]
) -> None:
    kept = tmp_path / "some" / "figures.json"
    command.main([*SMALL, "--keep", str(kept), "--only", *only])
    measured = command.Measured.model_validate_json(kept.read_text())
    assert [figure.name for figure in measured.figures] == NAMES[only]
    assert all(figure.value > 0 for figure in measured.figures)
    told = capfd.readouterr().out
    assert all(figure.name in told for figure in measured.figures)


def test_there_is_nothing_that_is_not_measured() -> None:
    assert {name for only in NAMES for name in only} == {"starts", *command.ON_A_SERVER}


@pytest.mark.parametrize(("value", "held"), [(149.0, True), (150.0, True), (150.1, False)])
def test_a_figure_over_its_bound_says_so(value: float, held: bool) -> None:
    figure = Figure(name="server idle", value=value, bound=150, unit="MB", also={"p95": 7.0})
    assert figure.held is held
    assert ("over its bound" in str(figure)) is not held
    assert "p95 7" in str(figure)


def test_the_middle_and_the_parts_below_which_most_lie() -> None:
    took = [float(n) for n in range(100, 0, -1)]
    assert median(took) == 50.5
    assert percentile(took, 0.95) == 96
    assert percentile(took, 0.99) == percentile(took, 1.0) == 100
    assert percentile([3.0], 0.5) == 3
