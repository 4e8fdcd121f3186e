"""Everything between an assignment and a command that can be executed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crucible.agent.checkpoints import fetch
from crucible.agent.host.bootstrap import Order
from crucible.agent.link.channel import Channel
from crucible.agent.process.environment import job_environment
from crucible.agent.python.environment import Builder, find_uv
from crucible.agent.python.pythons import Pythons
from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.agent.runner.leftovers import Staged
from crucible.agent.runner.secrets import handed_secrets
from crucible.agent.runner.staging import Stager
from crucible.agent.runner.staging_context import StageError, StageWork
from crucible.wire.shim import write_shim

PYTHON = "{python}"


@dataclass(frozen=True)
class Prepared:
    """What to execute, where and with which variables; `python` and `about` are for people.

    `staged` is the folder as it was, where what the job writes to it is not kept.
    """

    command: tuple[str, ...]
    folder: Path
    env: dict[str, str] = field(repr=False)
    python: str
    about: str
    staged: Staged | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values that stand in `env` and must show nowhere else."""


def prepare(
    order: Order,
    folder: AttemptFolder,
    channel: Channel,
    work: StageWork,
    host_env: Mapping[str, str],
    machine_has_gpus: bool,
) -> Prepared:
    """Stage code, inputs, the checkpoint to start from and environment. Raises StageError, Abandoned, Gone."""
    assignment, place = order.assignment, order.bootstrap
    if not assignment.command:
        raise StageError("the job has no command")
    try:
        folder.make_job_folders()
        write_shim(folder.python)
        stager = Stager(channel, work, place.cache / "bundles" if place.shared else None)
        code = stager.code(assignment, folder)
        stager.data(assignment.data, folder)
        if assignment.resume_from is not None:
            resume = assignment.resume_from
            fetch(resume, assignment.job, folder.resume / resume.name, channel, work)
        uv = find_uv(place.uv, host_env)
        builder = Builder(place.envs, Pythons(host_env, uv), work, host_env, uv)
        chosen = builder.choose(assignment.environment, code, assignment.env, assignment.bundle)
    except OSError as error:
        raise StageError(f"the job could not be prepared: {error}; check the disk of the machine") from error
    cpus = os.cpu_count()
    secrets = handed_secrets(assignment.secrets, channel, work)
    env = job_environment(assignment, folder, chosen.python, host_env, machine_has_gpus, cpus)
    env.update(secrets)
    first, *rest = assignment.command
    command = (chosen.python if first == PYTHON else first, *rest)
    staged = Staged.of(code) if assignment.in_place is None else None
    return Prepared(command, code, env, chosen.python, chosen.about, staged, tuple(secrets.values()))
