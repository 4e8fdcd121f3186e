"""`crucible init`: write an example job file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from crucible.cli.context import CommandContext
from crucible.core.errors import Conflict, Trouble

EXAMPLE = """\
# A job for `crucible run {file}`. docs/job-file.md explains every field. Command-line flags override this file.

# What to run: exactly one of script, directory, git, notebook, code, shell, model.
script: {script}
args: []

# name: first-run
# tags: [example]

# Where to run, and how big. Without a tier or sizes the job gets the whole machine and no time limit.
# backend: local
# fallback: [local]   (backends to continue on when a machine is lost)
# market: spot
# spot_fallback: true   # on demand if no spot machine is available
# tier: CPU_SMALL
# cpus: 2
# memory: 4G          (4 GiB)
# gpus: 1
# time: 1h

# Only variables named here reach the job; null takes the value from your shell.
# env:
#   WANDB_MODE: offline
#   HF_TOKEN: null

# Available in the job under $CRUCIBLE_DATA_DIR/<name>.
# data:
#   images: ./data/images

# Retries after the code itself failed (a lost machine is always retried).
# retries: 0
# retry_wait: 60s

# Keep the newest N checkpoints; value of $CRUCIBLE_SEED.
# keep: 3
# seed: 1
"""


def init(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="File to write (default: job.yaml).")] = Path(
        "job.yaml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of job files.")] = False,
) -> None:
    """Write an example job file."""
    cli = CommandContext.from_typer(ctx)
    if schema:
        from crucible.core.job.job_file import JobFile

        cli.out.json(JobFile.model_json_schema())
        return
    script = next((name for name in ("train.py", "main.py") if Path(name).exists()), "train.py")
    _write(file, EXAMPLE.format(file=file, script=script), force)
    if cli.out.as_json:
        cli.out.json({"file": str(file.absolute())})
    else:
        cli.out.say(f"Wrote {file}. Edit it, then: crucible run {file}")


def _write(file: Path, text: str, force: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL)
    try:
        with open(os.open(file, flags, 0o644), "w", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError as error:
        raise Conflict(f"{file} already exists.", fix="Choose another name, or add --force.") from error
    except OSError as error:
        fix = "Choose a file in a folder you can write to."
        raise Trouble(f"{file} cannot be written.", why=error.strerror or str(error), fix=fix) from error
