from __future__ import annotations

import os
import subprocess
import sys

import pytest

from crucible.simulation.faults.run import run

CODE = "from crucible.simulation.faults.run import run; print(run(3).digest)"


def digest_elsewhere(hash_seed: str) -> str:
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.check_output([sys.executable, "-c", CODE], env=env, text=True, timeout=300).strip()


@pytest.mark.timeout(600)
def test_a_seed_has_one_trace_in_any_process() -> None:
    assert digest_elsewhere("1") == digest_elsewhere("2")


@pytest.mark.timeout(300)
def test_a_seed_has_one_trace_whatever_ran_before() -> None:
    first = run(3)
    run(4)
    again = run(3)
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
    assert sum("is acknowledged" in line for line in told) == 5
    assert any("dies at" in line for line in told)
    assert any("is cut off" in line for line in told)
    assert any("calm" in line for line in told)
