"""A job that prints numbered lines until it is released, for tests of failing machines."""

from __future__ import annotations

from pathlib import Path

from tests.harness import Deployment, View, until

MiB = 1024**2
SMALL = {"cpus": 0.4, "memory_bytes": 64 * MiB}

# Prints a number a line until it may go; saves what it is told to, whole under its name at once.
COUNTER = """\
import os, sys, time

folder, checkpoints = sys.argv[1], os.environ["CRUCIBLE_CHECKPOINT_DIR"]
n = 0
while not os.path.exists(f"{folder}/go"):
    print("line", n)
    n += 1
    time.sleep(0.01)
    if n % 100 == 0:
        open(f"{folder}/{n}", "w").close()
    if os.path.exists(f"{folder}/save"):
        os.unlink(f"{folder}/save")
        with open(f"{checkpoints}/.part", "wb") as file:
            file.write(os.urandom(int(sys.argv[2])))
        open(f"{folder}/written", "w").close()
    if os.path.exists(f"{folder}/show"):
        os.unlink(f"{folder}/show")
        os.rename(f"{checkpoints}/.part", f"{checkpoints}/step-7.bin")
print("end", n)
"""


class Counting:
    """A job that prints until it is let go, and shows its checkpoint when it is told.

    `attempt` is the one that runs at first: on a busy computer a host may need a second try to come up.
    """

    def __init__(self, crucible: Deployment, folder: Path, size: int = MiB) -> None:
        self._crucible = crucible
        self._folder = folder
        folder.mkdir()
        command = ["{python}", "-u", "-c", COUNTER, str(folder), str(size)]
        self.job = crucible.submit({"command": command, "resources": SMALL})
        self.goes_on()
        self.attempt = int(crucible.phase(self.job, "running", seconds=120)["attempt"])

    def goes_on(self) -> None:
        """Wait until it has printed another hundred lines."""
        before = self._printed()
        until(lambda: self._printed() > before, 120, "the program to go on")

    def write_checkpoint(self) -> None:
        (self._folder / "save").touch()
        until((self._folder / "written").exists, 30, "a checkpoint that nobody sees yet")

    def show_checkpoint(self) -> None:
        (self._folder / "show").touch()

    def stored(self) -> list[View]:
        return list(self._crucible.get(f"/api/v1/jobs/{self.job}/checkpoints")["items"])

    def let_go(self) -> tuple[View, list[str]]:
        """Wait for the job's end; return the job and its output."""
        (self._folder / "go").touch()
        view = self._crucible.wait(self.job, 120)
        return view, self._crucible.log(self.job).decode().splitlines()

    def notes(self) -> list[str]:
        return [str(event["data"]["text"]) for event in self._crucible.events(self.job) if event["type"] == "note"]

    @staticmethod
    def left_out(lines: list[str]) -> int:
        """Check that every line is there in order, or counted by a mark; return how many were left out."""
        expected = left_out = 0
        for line in lines[:-1]:
            if line.startswith("[crucible] "):
                assert line.endswith(" lines left out: the disk was full")
                expected += int(line.split()[1])
                left_out += int(line.split()[1])
            else:
                assert line == f"line {expected}"
                expected += 1
        assert lines[-1] == f"end {expected}"
        return left_out

    def _printed(self) -> int:
        return max((int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()), default=0)
