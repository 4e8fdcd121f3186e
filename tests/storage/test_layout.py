from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible.storage import open_store
from crucible.storage.layout import (
    artifact_key,
    attempt_prefix,
    bundle_key,
    checkpoint_key,
    job_prefix,
    log_segment_key,
)
from crucible.wire.files.paths import UnsafePath

SHA = "ab" + "0" * 62


def test_keys() -> None:
    assert bundle_key(SHA) == f"bundles/ab/{SHA}.tar.gz"
    assert log_segment_key("job-1", "att-2", 3, 45) == "jobs/job-1/attempts/att-2/logs/3/00000045.log"
    assert artifact_key("job-1", "att-2", "model/best.pt") == "jobs/job-1/attempts/att-2/artifacts/model/best.pt"
    assert checkpoint_key("job-1", SHA) == f"jobs/job-1/checkpoints/{SHA}"
    assert artifact_key("j", "a", "plot #3 100%") == "jobs/j/attempts/a/artifacts/plot %233 100%25"


def test_what_is_kept_for_a_job_lies_below_its_folder() -> None:
    attempt = attempt_prefix("job-1", "att-2")
    assert attempt == "jobs/job-1/attempts/att-2"
    for key in (artifact_key("job-1", "att-2", "x"), log_segment_key("job-1", "att-2", 0, 0)):
        assert key.startswith(f"{attempt}/")
    for key in (attempt, checkpoint_key("job-1", SHA)):
        assert key.startswith(f"{job_prefix('job-1')}/")


def test_log_segments_sort_by_number() -> None:
    keys = [log_segment_key("j", "a", 0, n) for n in (0, 9, 10, 99_999_999)]
    assert keys == sorted(keys)


@pytest.mark.parametrize("sha", ["", "ab", SHA.upper(), SHA + "0", "../" + SHA[3:], SHA + "\n"])
def test_what_goes_by_its_hash_needs_a_real_hash(sha: str) -> None:
    with pytest.raises(UnsafePath):
        bundle_key(sha)
    with pytest.raises(UnsafePath):
        checkpoint_key("j", sha)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\\b", "a\x00", "C:", "a#1"])
def test_ids_are_single_names(name: str) -> None:
    for job, attempt in ((name, "a"), ("j", name)):
        with pytest.raises(UnsafePath):
            artifact_key(job, attempt, "x")
        with pytest.raises(UnsafePath):
            log_segment_key(job, attempt, 0, 0)
        with pytest.raises(UnsafePath):
            attempt_prefix(job, attempt)
    for make in (job_prefix, lambda job: checkpoint_key(job, SHA)):
        with pytest.raises(UnsafePath):
            make(name)


@pytest.mark.parametrize(
    "path", ["", "..", "../../x", "/etc/passwd", "a/../../b", "a\\b", "a//b", "x" * 300, "a/" * 500 + "b"]
)
def test_an_artifact_stays_in_its_place(path: str) -> None:
    with pytest.raises(UnsafePath):
        artifact_key("j", "a", path)


def test_numbers_are_not_negative() -> None:
    for rank, n in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            log_segment_key("j", "a", rank, n)


@given(st.lists(st.text("ab%#23/", min_size=1, max_size=6), min_size=2, max_size=2, unique=True))
def test_different_artifacts_have_different_keys(paths: list[str]) -> None:
    try:
        first, second = (artifact_key("j", "a", path) for path in paths)
    except UnsafePath:
        return
    assert first != second
    assert "#" not in first


def test_an_artifact_that_ends_like_a_drive_has_a_key_that_every_store_holds(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    for path in ("out/x:", "out/0A:", "a%3A", "out/b:c"):
        store.put(artifact_key("job-1", "att-1", path), path.encode())
    for path in ("out/x:", "out/0A:", "a%3A", "out/b:c"):
        assert store.get(artifact_key("job-1", "att-1", path)) == path.encode()
