"""The environment variables of the user's process."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.wire.documents.desired import Assignment

BASE = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "SHELL")
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_MAX_THREADS")


def job_environment(
    assignment: Assignment,
    folder: AttemptFolder,
    python: str,
    host_env: Mapping[str, str],
    machine_has_gpus: bool,
    machine_cpus: int | None = None,
) -> dict[str, str]:
    """Return the job's environment: BASE from the host's, overridden by the assignment's, and the job's own paths."""
    env = {name: host_env[name] for name in BASE if name in host_env}
    env.setdefault("PATH", DEFAULT_PATH)
    env["PYTHONUNBUFFERED"] = "1"
    env.update(_threads(assignment.limits.cpus, machine_cpus))
    env.update(assignment.env)
    _add_python(env, python)
    _add_gpus(env, assignment, machine_has_gpus)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), str(folder.python)]))
    env.update(_crucible(assignment, folder))
    return env


def _threads(cpus: float | None, machine_cpus: int | None) -> dict[str, str]:
    """Return thread limits, because numeric libraries start a thread for each core of the machine, limit or not."""
    if cpus is None or machine_cpus is None or cpus >= machine_cpus:
        return {}
    return dict.fromkeys(THREADS, str(max(1, math.ceil(cpus))))


def _crucible(assignment: Assignment, folder: AttemptFolder) -> dict[str, str]:
    env = {
        "CRUCIBLE_JOB_ID": assignment.job,
        "CRUCIBLE_ATTEMPT_ID": assignment.attempt,
        "CRUCIBLE_RANK": str(assignment.rank),
        "CRUCIBLE_OUTPUT_DIR": str(folder.outputs),
        "CRUCIBLE_DATA_DIR": str(folder.data),
        "CRUCIBLE_CHECKPOINT_DIR": str(folder.checkpoints),
        "CRUCIBLE_REPORT_FILE": str(folder.report),
        "CRUCIBLE_RESULT_FILE": str(folder.result),
        "CRUCIBLE_STOP_FILE": str(folder.stop),
        "CRUCIBLE_CHECKPOINT_NOW": str(folder.checkpoint_now),
    }
    if assignment.resume_from is not None:
        env["CRUCIBLE_RESUME_FROM"] = str(folder.resume / assignment.resume_from.name)
    return env


def _add_python(env: dict[str, str], python: str) -> None:
    """Put the folder of `python` on PATH, so that a shell command also finds the programs installed beside it."""
    prefix = Path(python).parent.parent
    is_venv = (prefix / "pyvenv.cfg").exists()
    is_environment = is_venv or (prefix / "conda-meta").is_dir()
    programs = str(Path(python).parent)
    if is_environment or programs not in env["PATH"].split(os.pathsep):
        env["PATH"] = os.pathsep.join([programs, env["PATH"]])
    if is_venv:
        env.setdefault("VIRTUAL_ENV", str(prefix))


def _add_gpus(env: dict[str, str], assignment: Assignment, machine_has_gpus: bool) -> None:
    if assignment.limits.gpus or machine_has_gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in assignment.limits.gpus)
