"""Where a job finds its folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from crucible.inside import data_dir, output_dir, resume_from


def test_in_a_job(job: Path) -> None:
    assert output_dir() == job / "outputs"
    assert output_dir().is_dir()
    assert data_dir() == job / "data"


def test_off_platform(off_platform: Path) -> None:
    assert output_dir().resolve() == off_platform / "outputs"
    assert data_dir() == Path("data")
    assert not data_dir().exists()


def test_resume_from_only_what_is_there(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resume_from() is None
    monkeypatch.setenv("CRUCIBLE_RESUME_FROM", str(job / "given"))
    assert resume_from() is None
    (job / "given").mkdir()
    assert resume_from() == job / "given"


def test_the_package_shows_the_calls() -> None:
    import crucible
    from crucible import inside

    assert crucible.report is inside.report
    assert crucible.checkpoint is inside.checkpoint
    assert crucible.should_stop is inside.should_stop
