from __future__ import annotations

import os
from pathlib import Path

import pytest

from crucible.agent.runner.collect import read_result
from crucible.wire.documents.results import MAX_BYTES, BadResult, Result, encode_result


def test_a_job_without_a_result_left_none(tmp_path: Path) -> None:
    assert read_result(tmp_path / "result.json") is None


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_bytes(encode_result(Result("inference", [1, 2])))
    assert read_result(tmp_path / "result.json") == Result("inference", [1, 2])


def test_nothing_else_is_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(b"x" * (MAX_BYTES + 10))
    with pytest.raises(BadResult, match="more than 65536 bytes"):
        read_result(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BadResult, match="not a regular file"):
        read_result(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(BadResult):
        read_result(path)
