from __future__ import annotations

import subprocess
import sys

from crucible.control.runtime.compose import deployment_id, process_name
from crucible.core.secret import Secret

NAME = "from crucible.control.runtime.compose import process_name; print(process_name())"


def test_a_worker_has_the_same_name_all_its_life_and_shares_it_with_nobody() -> None:
    other = subprocess.run([sys.executable, "-c", NAME], capture_output=True, text=True, check=True, timeout=60)
    assert process_name() == process_name() != other.stdout.strip()
    assert len(process_name()) <= 80


def test_a_deployment_is_known_by_its_key() -> None:
    assert deployment_id(Secret("a")) == deployment_id(Secret("a")) != deployment_id(Secret("b"))
