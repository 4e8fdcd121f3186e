from __future__ import annotations

from dataclasses import replace

import pytest

from crucible.simulation.faults import command
from crucible.simulation.faults.run import Outcome
from crucible.simulation.faults.trace import Trace


def outcome(seed: int) -> Outcome:
    trace = Trace(lambda: 1.5)
    trace("world", f"seed {seed} ran")
    return Outcome(seed, "", 3600.0, trace.digest, trace)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Seeds that were run; the seed 7 breaks."""
    seeds: list[int] = []

    def run(seed: int) -> Outcome:
        seeds.append(seed)
        return replace(outcome(seed), broken="two programs run" if seed == 7 else "")

    monkeypatch.setattr(command, "run", run)
    return seeds


def test_counts_come_last(ran: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "3", "--from", "2"]) == 0
    assert ran == [2, 3, 4]
    assert capsys.readouterr().out.splitlines()[-1].startswith("3 seeds, 3 virtual hours, 0 broken")


def test_a_broken_seed_fails_and_says_how_to_see_it_again(ran: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "2", "--from", "6"]) == 1
    said = capsys.readouterr().out
    assert "seed 7 ran" in said
    assert "seed 6 ran" not in said
    assert "seed 7: two programs run" in said
    assert "again: crucible-sim --seed 7" in said


def test_one_seed_shows_its_trace(ran: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seed", "9"]) == 0
    assert "seed 9 ran" in capsys.readouterr().out
