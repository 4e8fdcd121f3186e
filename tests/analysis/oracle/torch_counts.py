"""Count operations and memory with torch, in a separate environment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.templates.torch_environment import torch_python

Counts = dict[str, dict[str, float]]


def ask_torch(question: dict[str, object]) -> dict[str, Counts]:
    script = Path(__file__).parent / "counter.py"
    asked = json.dumps(question)
    done = subprocess.run([torch_python(), script], input=asked, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Counts] = json.loads(done.stdout)
    return found
