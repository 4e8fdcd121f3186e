from __future__ import annotations

import json
from pathlib import Path

import pytest

import crucible
from crucible.inside.results import result
from crucible.wire.documents.results import BadResult, Result, decode_result


class Array:
    """What numeric libraries return."""

    def __init__(self, values: object) -> None:
        self._values = values

    def tolist(self) -> object:
        return self._values


def left(job: Path) -> Result:
    return decode_result((job / "result.json").read_bytes())


@pytest.fixture(autouse=True)
def a_result_file(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_RESULT_FILE", str(job / "result.json"))
    monkeypatch.delenv("CRUCIBLE_KIND", raising=False)


def test_the_last_result_stays(job: Path) -> None:
    crucible.result({"label": "cat"})
    crucible.result({"label": "dog"})
    assert left(job) == Result("value", {"label": "dog"})
    assert [path.name for path in job.iterdir()] == ["result.json"]


def test_its_kind_is_the_jobs_unless_it_is_said(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUCIBLE_KIND", "inference")
    result(1)
    assert left(job).kind == "inference"
    result({"ms": 3.5}, kind="benchmark")
    assert left(job).kind == "benchmark"


def test_arrays_and_numbers_of_libraries_become_plain(job: Path) -> None:
    result({"scores": Array([0.1, 0.9]), "best": Array(1), "pairs": [(1, Array(2))]})
    assert left(job).value == {"scores": [0.1, 0.9], "best": 1, "pairs": [[1, 2]]}


def test_what_does_not_fit_leaves_the_result_before_it(job: Path) -> None:
    result(1)
    with pytest.raises(BadResult, match="the result\\['model'\\] is a object"):
        result({"model": object()})
    assert left(job).value == 1


def test_what_holds_itself_is_refused(job: Path) -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(BadResult, match="contains itself"):
        result(endless)


def test_off_the_platform_it_prints(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CRUCIBLE_JOB_ID")
    result({"a": [1]})
    assert json.loads(capsys.readouterr().out.removeprefix("result ")) == {"a": [1]}
    assert not (job / "result.json").exists()
