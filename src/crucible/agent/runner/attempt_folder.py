"""The folder of one attempt on this machine, and the paths in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crucible.agent.files import sync_folder
from crucible.wire.files.paths import safe_name


@dataclass(frozen=True)
class AttemptFolder:
    """The paths. `process` is written before the user's program starts: once it exists, the program is never restarted.

    `exited` exists once the exit of the program is recorded, `done` once everything is acknowledged.
    """

    root: Path

    @classmethod
    def for_attempt(cls, attempts: Path, attempt: str, rank: int) -> AttemptFolder:
        if "/" in safe_name(attempt):
            raise ValueError(f"not an attempt id: {attempt!r}")
        return cls(attempts / f"{attempt}-{int(rank)}")

    @property
    def machine(self) -> Path:
        """The folder of the machine, with those of all its attempts."""
        return self.root.parent.parent

    @property
    def lock(self) -> Path:
        return self.root / "runner.lock"

    @property
    def runner(self) -> Path:
        return self.root / "runner.json"

    @property
    def process(self) -> Path:
        return self.root / "process.json"

    @property
    def spool(self) -> Path:
        return self.root / "spool"

    @property
    def output_log(self) -> Path:
        return self.root / "output.log"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def staged(self) -> Path:
        """Holds the state of the working directory before the job ran. Missing if the job runs in place."""
        return self.root / "staged.json"

    @property
    def outputs(self) -> Path:
        return self.root / "outputs"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def snapshots(self) -> Path:
        """Copies of checkpoints that are being uploaded."""
        return self.root / "snapshots"

    @property
    def stored_checkpoints(self) -> Path:
        return self.root / "checkpoints.json"

    @property
    def resume(self) -> Path:
        """Holds the checkpoint that the job resumes from, under its own name."""
        return self.root / "resume"

    @property
    def python(self) -> Path:
        """Holds the `crucible` package that a job can import."""
        return self.root / "python"

    @property
    def report(self) -> Path:
        return self.root / "report.jsonl"

    @property
    def result(self) -> Path:
        """The file that `crucible.result` writes."""
        return self.root / "result.json"

    @property
    def stop(self) -> Path:
        return self.root / "stop"

    @property
    def checkpoint_now(self) -> Path:
        """Touched each time a checkpoint is requested."""
        return self.root / "checkpoint-now"

    @property
    def exited(self) -> Path:
        return self.root / "exited"

    @property
    def done(self) -> Path:
        return self.root / "done"

    def create(self) -> None:
        """Make the folder, and that of all attempts; never the machine's folder above them, which may be gone."""
        for path in (self.root.parent, self.root):
            path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(self.root.parent)

    def make_job_folders(self) -> None:
        for folder in (self.outputs, self.data, self.checkpoints):
            folder.mkdir(exist_ok=True)

    def clear_stage(self) -> None:
        """Remove what an earlier runner staged before it died."""
        for folder in (self.work, self.outputs, self.data, self.checkpoints, self.resume, self.python):
            shutil.rmtree(folder, ignore_errors=True)
        self.staged.unlink(missing_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def list_attempts(folder: Path) -> Iterator[tuple[str, int, AttemptFolder]]:
    """Yield attempt id, rank and folder of every attempt in the folder."""
    for path in sorted(folder.glob("*-*")) if folder.is_dir() else ():
        attempt, _, rank = path.name.rpartition("-")
        if attempt and rank.isdigit() and path.is_dir():
            yield attempt, int(rank), AttemptFolder(path)
