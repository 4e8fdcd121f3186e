"""`crucible init`: an example job file to begin with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.session import Session
from crucible.core.errors import Conflict, Trouble

EXAMPLE = """\
# A job for `crucible run {file}`. docs/job-file.md explains every field; flags win over what is written here.

# What to run: exactly one of script, directory, git, notebook, code, shell, model.
script: {script}
args: []

# name: first-try
# tags: [example]

# Where and how big. Without a tier or sizes the job gets the whole machine and no time limit.
# backend: local
# fallback: [local]   (where to go on when a place takes its machine back)
# market: spot
# tier: CPU_SMALL
# cpus: 2
# memory: 4G          (4 GiB)
# gpus: 1
# time: 1h

# Only variables named here reach the job; null takes the value of your shell.
# env:
#   WANDB_MODE: offline
#   HF_TOKEN: null

# Appears under $CRUCIBLE_DATA_DIR/<name>.
# data:
#   images: ./data/images

# Retries after the code itself failed (places that go away are retried anyway).
# retries: 0
# retry_wait: 60s

# How many of the newest checkpoints stay, and the number that $CRUCIBLE_SEED gives the program.
# keep: 3
# seed: 1
"""


def init(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="The file to write.")] = Path("job.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of job files.")] = False,
) -> None:
    """Write an example job file."""
    session = Session.of(ctx)
    if schema:
        from crucible.core.job.job_file import JobFile

        session.out.json(JobFile.model_json_schema())
        return
    script = next((name for name in ("train.py", "main.py") if Path(name).exists()), "train.py")
    _write(file, EXAMPLE.format(file=file, script=script), force)
    if session.out.as_json:
        session.out.json({"file": str(file.absolute())})
    else:
        session.out.say(f"Wrote {file}. Edit it, then: crucible run {file}")


def _write(file: Path, text: str, force: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        with open(os.open(file, flags, 0o644), "w", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError as error:
        raise Conflict(f"{file} is already there.", fix="Choose another name, or add --force.") from error
    except OSError as error:
        fix = "Name a file in a folder that you may write to."
        raise Trouble(f"{file} cannot be written.", why=error.strerror or str(error), fix=fix) from error
