"""A job does not need the server: while it is dead the job goes on, and later all of its output arrives."""

from __future__ import annotations

from pathlib import Path

from tests.harness import Deployment, alive, until

LINES = 100_000
KILLS_AT = (5_000, 35_000, 65_000)
WHILE_DEAD = 10_000
"""Lines that the job prints before the server is started again."""

PRINTER = """\
import os, sys, time

folder, lines = sys.argv[1], int(sys.argv[2])
with open(f"{folder}/pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
for number in range(lines):
    print(f"line {number}")
    if number % 1000 == 999:
        with open(f"{folder}/.progress", "w") as file:
            file.write(str(number + 1))
        os.replace(f"{folder}/.progress", f"{folder}/progress")
        time.sleep(0.15)
"""


def test_every_line_arrives_once_and_in_order(crucible: Deployment, tmp_path: Path) -> None:
    job = crucible.submit({"command": ["{python}", "-u", "-c", PRINTER, str(tmp_path), str(LINES)]})
    for mark in KILLS_AT:
        _printed(tmp_path, mark)
        crucible.kill()
        seen = _progress(tmp_path)
        assert seen < LINES, "it is killed while the job prints"
        _printed(tmp_path, min(seen + WHILE_DEAD, LINES))
        crucible.start()
    (pid,) = map(int, (tmp_path / "pids").read_text().split())
    view = crucible.wait(job, 90)
    assert (view["status"], view["attempt"]) == ("completed", 1)
    assert view["attempts"][0]["facts"]["started"]["pid"] == pid
    assert not alive(pid)
    lines = crucible.log(job).decode().splitlines()
    assert len(lines) == LINES
    assert lines == [f"line {number}" for number in range(LINES)]
    crucible.nothing_left()


def _printed(folder: Path, lines: int) -> None:
    until(lambda: _progress(folder) >= lines, 90, f"{lines} lines")


def _progress(folder: Path) -> int:
    path = folder / "progress"
    return int(path.read_text()) if path.exists() else 0
