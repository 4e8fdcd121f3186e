"""The paths of a job, from its environment; outside a job, folders of the working directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional


def on_platform() -> bool:
    """Return whether this process belongs to a job."""
    return bool(os.environ.get("CRUCIBLE_JOB_ID"))


def output_dir() -> Path:
    """Files written here become artifacts of the job. Off-platform: ./outputs. The folder exists."""
    return _folder("CRUCIBLE_OUTPUT_DIR", "outputs")


def checkpoint_dir() -> Path:
    """Off-platform: ./checkpoints. It exists when this returns."""
    return _folder("CRUCIBLE_CHECKPOINT_DIR", "checkpoints")


def data_dir() -> Path:
    """Where the job's inputs are, each under its name. Off-platform: ./data. It is never created."""
    return Path(os.environ.get("CRUCIBLE_DATA_DIR") or "data")


def resume_from() -> Optional[Path]:
    """The checkpoint of an earlier attempt to start from; None for a fresh start."""
    value = os.environ.get("CRUCIBLE_RESUME_FROM")
    return Path(value) if value and os.path.exists(value) else None


def _folder(variable: str, otherwise: str) -> Path:
    path = Path(os.environ.get(variable) or otherwise)
    path.mkdir(parents=True, exist_ok=True)
    return path
