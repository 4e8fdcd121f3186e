"""Prepare a job: turn its assignment into a command that can be executed."""

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
from crucible.agent.process.arguments import expand_arguments
from crucible.agent.process.environment import job_environment
from crucible.agent.python.environment import EnvironmentBuilder, find_uv
from crucible.agent.python.pythons import Pythons
from crucible.agent.runner.attempt_folder import AttemptFolder
from crucible.agent.runner.staging import Stager, start_folder
from crucible.agent.runner.staging_context import StagingContext, StagingError
from crucible.agent.runner.work_files import StagedFiles
from crucible.wire.documents.crypto import NoCryptography
from crucible.wire.shim import write_shim

PYTHON = "{python}"
NOTE_AFTER = 2
"""Failed requests for the secrets before the status shows that the job waits for them."""


@dataclass(frozen=True)
class PreparedJob:
    """What to execute, where, and with which variables; `python` and `about` are shown to users."""

    command: tuple[str, ...]
    folder: Path
    env: dict[str, str] = field(repr=False)
    python: str
    about: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values of `env` that must be masked everywhere."""


def prepare(
    assignment_file: AssignmentFile,
    folder: AttemptFolder,
    channel: Channel,
    work: StagingContext,
    host_env: Mapping[str, str],
    machine_has_gpus: bool,
) -> PreparedJob:
    """Stage code, inputs, checkpoint and Python. Raises StagingError, StagingAborted, Gone."""
    assignment, bootstrap = assignment_file.assignment, assignment_file.bootstrap
    if not assignment.command:
        raise StagingError("the job has no command")
    try:
        folder.make_job_folders()
        write_shim(folder.python)
        stager = Stager(channel, work, bootstrap.cache / "bundles" if bootstrap.shared else None)
        code = stager.code(assignment, folder)
        stager.data(assignment.data, folder)
        if assignment.resume_from is not None:
            resume = assignment.resume_from
            fetch(resume, assignment.job, folder.resume / resume.name, channel, work)
        uv = find_uv(bootstrap.uv, host_env)
        builder = EnvironmentBuilder(bootstrap.envs, Pythons(host_env, uv), work, host_env, uv, bootstrap.elsewhere)
        chosen = builder.choose(assignment.environment, code, assignment.env, assignment.bundle)
        if assignment.in_place is None:
            StagedFiles.scan(code).write(folder.staged)
    except OSError as error:
        raise StagingError(f"the job could not be prepared: {error}; check the disk of the machine") from error
    cpus = os.cpu_count()
    # Last, so that secrets are in memory no longer than needed, and their newest values are used.
    secrets = fetch_secrets(assignment.secrets, channel, work)
    env = job_environment(assignment, folder, chosen.python, host_env, machine_has_gpus, cpus)
    env.update(secrets)
    first, *rest = assignment.command
    command = expand_arguments((chosen.python if first == PYTHON else first, *rest), env)
    start = start_folder(code, assignment.workdir)
    return PreparedJob(command, start, env, chosen.python, chosen.about, tuple(secrets.values()))


def fetch_secrets(wanted: Sequence[str], channel: Channel, work: StagingContext) -> dict[str, str]:
    """Return the secrets by variable, retrying while the server is unreachable. They are never written to disk.

    Raises StagingError, StagingAborted, Gone.
    """
    backoff, failures = Backoff(), 0
    while wanted:
        work.check_aborted()
        try:
            values = channel.secrets()
            break
        except Unreachable as error:
            failures += 1
            if failures == NOTE_AFTER:
                work.status(f"waiting for the job's secrets: {error}")
            work.aborted.wait(backoff.next())
        except NoCryptography as error:
            raise StagingError(f"the job's secrets cannot be read here: {error}") from error
        except Refused as error:
            raise StagingError(f"the server refused the job's secrets: {error}") from error
    else:
        return {}
    missing = sorted(set(wanted) - set(values))
    if missing:
        raise StagingError(f"the server sent no value for {missing[0]}; set the secret again, then resume the job")
    return {name: values[name] for name in wanted}
