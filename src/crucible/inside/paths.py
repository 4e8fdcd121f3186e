"""The paths of a job, from its environment variables; outside a job, folders in the working directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional


def on_platform() -> bool:
    """Return whether this process belongs to a job."""
    return bool(os.environ.get("CRUCIBLE_JOB_ID"))


def output_dir() -> Path:
    """Return the folder whose files become artifacts of the job. Off-platform: ./outputs. It exists."""
    return _folder("CRUCIBLE_OUTPUT_DIR", "outputs")


def checkpoint_dir() -> Path:
    """Return the folder of the job's checkpoints. Off-platform: ./checkpoints. It exists."""
    return _folder("CRUCIBLE_CHECKPOINT_DIR", "checkpoints")


def data_dir() -> Path:
    """Return the folder with the job's inputs, each under its name. Off-platform: ./data. It is never created."""
    return Path(os.environ.get("CRUCIBLE_DATA_DIR") or "data")


def resume_from() -> Optional[Path]:
    """Return the checkpoint of an earlier attempt to start from, or None."""
    value = os.environ.get("CRUCIBLE_RESUME_FROM")
    return Path(value) if value and os.path.exists(value) else None


def _folder(variable: str, default: str) -> Path:
    path = Path(os.environ.get(variable) or default)
    path.mkdir(parents=True, exist_ok=True)
    return path
