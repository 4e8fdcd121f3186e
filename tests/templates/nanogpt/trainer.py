"""Runs the template's scripts as processes, by hand or as a job's attempts, and disturbs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src"
SECONDS = 120.0
"""A run takes a few seconds; past this it hangs."""

TOGETHER = """
import contextlib, importlib, io, json, os, sys
sys.path.insert(0, os.getcwd())
done = []
for script, folder, arguments, env in json.load(sys.stdin):
    os.chdir(folder)
    os.environ.update(env)
    sys.argv = [script, *arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = importlib.import_module(script).main()
    for name in env:
        del os.environ[name]
    done.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(done))
"""

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


@dataclass(frozen=True)
class Done:
    code: int
    output: str
    errors: str = ""

    @property
    def steps(self) -> list[int]:
        return steps_in(self.output)


@dataclass(frozen=True)
class Start:
    """One start of a script, off the platform unless `env` says more."""

    folder: Path
    arguments: tuple[str, ...]
    script: str = "train"
    env: tuple[tuple[str, str], ...] = ()


class Trainer:
    def __init__(self, python: Path, code: Path, folder: Path) -> None:
        self.python, self.code, self.folder = python, code, folder

    def script(self, name: str, *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Done:
        done = subprocess.run(
            [str(self.python), str(self.code / name), *arguments],
            cwd=cwd or self.folder,
            env=self.environment() | (env or {}),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def together(self, *starts: Start) -> list[Done]:
        """One after the other in one process, because importing torch takes longer than a short run."""
        told = [[each.script, str(each.folder), each.arguments, dict(each.env)] for each in starts]
        for each in starts:
            each.folder.mkdir(parents=True, exist_ok=True)
        return [Done(*each) for each in json.loads(self.probe(TOGETHER, said=json.dumps(told)))]

    def plainly(self, *arguments: str, env: dict[str, str] | None = None) -> Done:
        """Without Crucible: `python train.py` in the folder."""
        return self.script("train.py", "--preset", "cpu-tiny", *arguments, env=env)

    def probe(self, program: str, *arguments: str, said: str = "") -> str:
        """What a few lines of Python beside the template's modules print."""
        done = subprocess.run(
            [str(self.python), "-c", program, *arguments],
            cwd=self.code,
            env=self.environment(),
            input=said,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

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

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        return {**kept, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


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
            env=trainer.environment() | places | env,
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
