from __future__ import annotations

import os
import subprocess
import sys

import pytest

from crucible.control.agents.agents import Agents
from crucible.simulation.faults.checks.checkers import Checkers
from crucible.simulation.faults.run import run

TWO_SERVERS = 33
"""A seed with two servers, a receiver and secrets."""
CODE = f"from crucible.simulation.faults.run import run; print(run({TWO_SERVERS}).digest)"


def digest_elsewhere(hash_seed: str) -> str:
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.check_output([sys.executable, "-c", CODE], env=env, text=True, timeout=300).strip()


@pytest.mark.timeout(600)
def test_a_seed_has_one_trace_in_any_process() -> None:
    assert digest_elsewhere("1") == digest_elsewhere("2")


@pytest.mark.timeout(300)
def test_a_seed_has_one_trace_whatever_ran_before() -> None:
    first = run(TWO_SERVERS)
    run(4)
    again = run(TWO_SERVERS)
    assert first.trace.lines == again.trace.lines
    assert first.digest == again.digest


@pytest.mark.timeout(300)
def test_two_seeds_have_two_traces() -> None:
    assert run(3).digest != run(4).digest


@pytest.mark.timeout(300)
def test_a_run_is_full_of_faults_and_comes_to_its_end() -> None:
    outcome = run(3)
    told = [f"{line.who} {line.what}" for line in outcome.trace.lines]
    assert outcome.ok
    assert sum("is acknowledged as job" in line for line in told) == 5
    assert any("dies at" in line for line in told)
    assert any("is cut off" in line for line in told)
    assert any("calm" in line for line in told)


@pytest.mark.timeout(300)
def test_hooks_are_made_and_keys_rotated() -> None:
    told = [f"{line.who} {line.what}" for line in run(TWO_SERVERS).trace.lines]
    assert any("steward https://receiver/" in line and "is acknowledged" in line for line in told)
    assert any("steward rotate is acknowledged" in line for line in told)
    assert any("steward HF_TOKEN is value" in line and "is acknowledged" in line for line in told)


@pytest.mark.timeout(300)
def test_an_error_that_nobody_expects_is_a_finding_though_the_job_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = Agents.attempt_desired, [1]

    async def once(self: Agents, *what: object) -> object:
        if left:
            left.pop()
            raise KeyError("attempt")
        return await real(self, *what)  # type: ignore[arg-type]

    monkeypatch.setattr(Agents, "attempt_desired", once)
    assert run(3).broken == "nobody expected KeyError('attempt')"


@pytest.mark.timeout(300)
def test_an_error_of_the_simulation_is_told_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Checkers, calm_since: float | None) -> None:
        raise ValueError("no such column")

    monkeypatch.setattr(Checkers, "check", fail)
    outcome = run(3)
    assert (outcome.seed, outcome.broken) == (3, "ValueError('no such column')")
    assert outcome.trace.lines


@pytest.mark.timeout(300)
def test_a_server_stands_still_beside_another_and_goes_on() -> None:
    told = [f"{line.who} {line.what}" for line in run(TWO_SERVERS).trace.lines]
    still = [line.partition(" stands still")[0] for line in told if "stands still at" in line]
    assert still
    assert any(f"{name} goes on" in told for name in still)
