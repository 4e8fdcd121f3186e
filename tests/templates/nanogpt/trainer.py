"""Runs the template's scripts as processes, by hand or as a job's attempts, and disturbs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.templates.nanogpt.torch_fork_server import Start, TorchForkServer

SOURCE = Path(__file__).parents[3] / "src"
SECONDS = 300.0
"""A run takes a few seconds; past this it hangs."""

DIGESTS = """
import hashlib, sys, torch
for path in sys.argv[1:]:
    weights = torch.load(path, weights_only=True)["model"]
    content = b"".join(weights[name].numpy().tobytes() for name in sorted(weights))
    print(hashlib.sha256(content).hexdigest())
"""

_ITER = re.compile(r"iter (\d+)/(\d+): loss ")


def steps_in(output: str) -> list[int]:
    """The steps that a run did, from its `iter` lines."""
    return [int(found[1]) for found in map(_ITER.match, output.splitlines()) if found]


def environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class Done:
    code: int
    output: str
    errors: str = ""

    @property
    def steps(self) -> list[int]:
        return steps_in(self.output)


class Trainer:
    def __init__(self, python: Path, code: Path, folder: Path, torch_fork_server: TorchForkServer) -> None:
        self.python, self.code, self.folder, self.torch_fork_server = python, code, folder, torch_fork_server

    def script(self, name: str, *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Done:
        done = subprocess.run(
            [str(self.python), str(self.code / name), *arguments],
            cwd=cwd or self.folder,
            env=environment() | (env or {}),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def together(self, *starts: Start) -> list[Done]:
        """Run them one after the other in the fork server."""
        return [Done(*self.torch_fork_server.run(start)) for start in starts]

    def plainly(self, *arguments: str, env: dict[str, str] | None = None) -> Done:
        """Without Crucible: `python train.py` in the folder."""
        return self.script("train.py", "--preset", "cpu-tiny", *arguments, env=env)

    def probe(self, program: str, *arguments: str) -> str:
        """What a few lines of Python beside the template's modules print."""
        script = self.folder / "probe.py"
        script.write_text(program)
        (done,) = self.together(Start(self.code, arguments, str(script)))
        assert done.code == 0, done.errors
        return done.output.strip()

    def digests(self, *paths: Path) -> list[str]:
        """Of the weights in models or checkpoints, by torch alone."""
        return self.probe(DIGESTS, *map(str, paths)).splitlines()

    def attempt(
        self, number: int, *arguments: str, resume_from: Path | None = None, on_platform: bool = True
    ) -> Attempt:
        """The run as an attempt of a job: folders of its own, and `import crucible` works."""
        folder = self.folder / f"attempt-{number}"
        env = {} if resume_from is None else {"CRUCIBLE_RESUME_FROM": str(resume_from)}
        if on_platform:
            env |= {"CRUCIBLE_JOB_ID": "job", "PYTHONPATH": str(SOURCE)}
        return Attempt(self, folder, arguments, env)


class Attempt:
    def __init__(self, trainer: Trainer, folder: Path, arguments: tuple[str, ...], env: dict[str, str]) -> None:
        self.checkpoints, self.outputs = folder / "checkpoints", folder / "outputs"
        self.report, self.stop_file = folder / "report.jsonl", folder / "stop"
        self.checkpoints.mkdir(parents=True)
        places = {
            "CRUCIBLE_CHECKPOINT_DIR": str(self.checkpoints),
            "CRUCIBLE_OUTPUT_DIR": str(self.outputs),
            "CRUCIBLE_REPORT_FILE": str(self.report),
            "CRUCIBLE_STOP_FILE": str(self.stop_file),
        }
        self._process = subprocess.Popen(
            [str(trainer.python), str(trainer.code / "train.py"), *arguments],
            cwd=folder,
            env=environment() | places | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def to_the_end(self) -> Done:
        return self._disturbed(None, lambda: None)

    def stopped_at(self, step: int) -> Done:
        """The platform asks it to stop: the stop file, then SIGTERM."""

        def stop() -> None:
            self.stop_file.touch()
            self._process.send_signal(signal.SIGTERM)

        return self._disturbed(step, stop)

    def terminated_at(self, step: int) -> Done:
        """Somebody else sends SIGTERM."""
        return self._disturbed(step, lambda: self._process.send_signal(signal.SIGTERM))

    def killed_at(self, step: int) -> Done:
        return self._disturbed(step, self._process.kill)

    def _disturbed(self, step: int | None, disturb: Callable[[], object]) -> Done:
        """Reads to the end of the output; `disturb` is called when the line of `step` appears."""
        watchdog = threading.Timer(SECONDS, self._process.kill)
        watchdog.start()
        lines = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            lines.append(line)
            found = _ITER.match(line)
            if found and int(found[1]) == step:
                disturb()
        code = self._process.wait(SECONDS)
        self._process.stdout.close()
        watchdog.cancel()
        return Done(code, "".join(lines))
