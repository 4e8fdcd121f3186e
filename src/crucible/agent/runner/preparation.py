"""Everything between an assignment and a command that can be executed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crucible.agent.checkpoints import fetch
from crucible.agent.host.bootstrap import AssignmentFile
from crucible.agent.link.backoff import Backoff
from crucible.agent.link.channel import Channel
from crucible.agent.link.connection import Refused, Unreachable
from crucible.agent.process.environment import job_environment
from crucible.agent.python.environment import EnvironmentBuilder, find_uv
from crucible.agent.python.pythons import Pythons
from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.agent.runner.leftovers import FolderBaseline
from crucible.agent.runner.staging import Stager
from crucible.agent.runner.staging_context import StagingContext, StagingError
from crucible.wire.documents.crypto import NoCryptography
from crucible.wire.shim import write_shim

PYTHON = "{python}"
NOTE_AFTER = 2
"""Failed requests for the secrets before the user is told what the job waits for."""


@dataclass(frozen=True)
class PreparedJob:
    """What to execute, where and with which variables; `python` and `about` are for people.

    `staged` is the folder as it was, where what the job writes to it is not kept.
    """

    command: tuple[str, ...]
    folder: Path
    env: dict[str, str] = field(repr=False)
    python: str
    about: str
    baseline: FolderBaseline | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values that stand in `env` and must show nowhere else."""


def prepare(
    order: AssignmentFile,
    folder: AttemptFolder,
    channel: Channel,
    work: StagingContext,
    host_env: Mapping[str, str],
    machine_has_gpus: bool,
) -> PreparedJob:
    """Stage code, inputs, the checkpoint to start from and environment. Raises StageError, Abandoned, Gone."""
    assignment, place = order.assignment, order.bootstrap
    if not assignment.command:
        raise StagingError("the job has no command")
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
        builder = EnvironmentBuilder(place.envs, Pythons(host_env, uv), work, host_env, uv)
        chosen = builder.choose(assignment.environment, code, assignment.env, assignment.bundle)
    except OSError as error:
        raise StagingError(f"the job could not be prepared: {error}; check the disk of the machine") from error
    cpus = os.cpu_count()
    secrets = fetch_secrets(assignment.secrets, channel, work)
    env = job_environment(assignment, folder, chosen.python, host_env, machine_has_gpus, cpus)
    env.update(secrets)
    first, *rest = assignment.command
    command = (chosen.python if first == PYTHON else first, *rest)
    staged = FolderBaseline.take(code) if assignment.in_place is None else None
    return PreparedJob(command, code, env, chosen.python, chosen.about, staged, tuple(secrets.values()))


def fetch_secrets(wanted: Sequence[str], channel: Channel, work: StagingContext) -> dict[str, str]:
    """Values by variable, however long the server is away. Raises StageError, Abandoned, Gone."""
    backoff, tries = Backoff(), 0
    while wanted:
        work.check_aborted()
        try:
            found = channel.secrets()
            break
        except Unreachable as error:
            tries += 1
            if tries == NOTE_AFTER:
                work.status(f"waiting for the job's secrets: {error}")
            work.aborted.wait(backoff.next())
        except NoCryptography as error:
            raise StagingError(f"the job's secrets cannot be read here: {error}") from error
        except Refused as error:
            raise StagingError(f"the job's secrets were not handed over: {error}") from error
    else:
        return {}
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise StagingError(
            f"the server handed over no value for {missing[0]}; set the secret again, then resume the job"
        )
    return {name: found[name] for name in wanted}
