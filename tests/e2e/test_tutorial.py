"""The tutorial does what it says: its files are written and its commands run, in order, as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.harness import Deployment

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(?P<kind>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_tutorial(crucible: Deployment, tmp_path: Path) -> None:
    folder = tmp_path / "tutorial"
    folder.mkdir()
    output, commands = "", 0
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        if block["kind"] == "python":
            (folder / block["name"]).write_text(block["text"], encoding="utf-8")
        elif block["kind"] == "sh":
            output = run(crucible, folder, block["text"])
            commands += block["text"].count("crucible ")
        else:
            assert block["text"] in output
    assert commands >= 12
    assert "completed" in run(crucible, folder, "crucible status long")
    assert re.findall(r"^epoch (\d+)/100", run(crucible, folder, "crucible logs long"), re.MULTILINE)[-1] == "100"
    assert list(folder.glob("job-*/model.json")), "download fetched the model"


def run(crucible: Deployment, folder: Path, script: str) -> str:
    """Run a block the way a shell would that stops at the first command that fails; return standard output."""
    script = re.sub(r"^crucible ", f"{sys.executable} -m crucible ", script, flags=re.MULTILINE)
    done = subprocess.run(
        ["bash", "-euc", script], cwd=folder, env=crucible.env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout
