"""Fork scripts from a Python process that has imported torch, because importing it takes longer than a short run."""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

SERVE = """
import json, os, runpy, sys, tempfile, traceback
import torch, torch._dynamo

def run(script, folder, arguments, env):
    os.chdir(folder)
    os.environ.update(env)
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

def born(out, err, wanted):
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    code = 1
    try:
        code = run(*wanted)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)

sys.path.insert(0, os.getcwd())
for line in sys.stdin:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork() or born(out, err, json.loads(line))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = [open(file.fileno(), closefd=False) for file in (out, err)]
        print(json.dumps([code, *(file.seek(0) or file.read() for file in said)]), flush=True)
"""


@dataclass(frozen=True)
class Start:
    """One start of a script in the template's folder, outside Crucible unless `env` sets its variables."""

    folder: Path
    arguments: tuple[str, ...]
    script: str = "train.py"
    env: tuple[tuple[str, str], ...] = ()


class TorchForkServer:
    """Runs one script after the other."""

    def __init__(self, python: Path, code: Path, env: dict[str, str], seconds: float) -> None:
        self._code, self._seconds = code, seconds
        self._process = subprocess.Popen(
            [str(python), "-c", SERVE], cwd=code, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, start: Start) -> tuple[int, str, str]:
        """Its exit code and what it wrote; past the time, all runs fail."""
        start.folder.mkdir(parents=True, exist_ok=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(self._seconds, self._process.kill)
        watchdog.start()
        script = str(self._code / start.script)
        self._process.stdin.write(json.dumps([script, str(start.folder), start.arguments, dict(start.env)]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        watchdog.cancel()
        assert answer, f"no end in {self._seconds:g} s: {start}"
        code, output, errors = json.loads(answer)
        return code, output, errors

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(self._seconds)
