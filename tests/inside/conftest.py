"""A place for a job: a folder with the variables the runner sets, or none of them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def off_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The attempt's folder of a job that runs on the platform."""
    monkeypatch.setenv("CRUCIBLE_JOB_ID", "job-1")
    for variable, name in (
        ("CHECKPOINT_DIR", "checkpoints"),
        ("OUTPUT_DIR", "outputs"),
        ("DATA_DIR", "data"),
        ("REPORT_FILE", "report.jsonl"),
        ("STOP_FILE", "stop"),
        ("CHECKPOINT_NOW", "checkpoint-now"),
    ):
        monkeypatch.setenv(f"CRUCIBLE_{variable}", str(tmp_path / name))
    return tmp_path
