from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from benchmarks.analysis import baselines
from benchmarks.analysis.command import main
from benchmarks.analysis.corpus import OURS, SECOND, Part, labels
from benchmarks.analysis.corpus import corpus as corpus_of
from benchmarks.analysis.scores import accuracy, macro_f1, percentile
from benchmarks.analysis.whole import whole_program

from crucible.analysis import Sources, analyse
from crucible.analysis.knowledge.frameworks import FRAMEWORKS
from crucible.core.routing.profile import GpuNeed

LABELS = "file,frameworks,gpu,parameters\na.py,torch,required,16\nb.py,sklearn,none,\nc/d.py,torch,none,\n"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "c").mkdir()
    (tmp_path / "a.py").write_text("import torch\ntorch.nn.Linear(3, 4).cuda()\n")
    (tmp_path / "b.py").write_text("from sklearn.svm import SVC\nSVC().fit(x, y)\n")
    (tmp_path / "c" / "d.py").write_text('"""cuda"""\nimport torch\ntorch.zeros(3)\n')
    (tmp_path / "labels.csv").write_text(LABELS)
    return tmp_path


def test_labels_are_read_with_the_paths_of_their_scripts(corpus: Path) -> None:
    found = labels(corpus)
    assert [each.gpu for each in found] == ["required", "none", "none"]
    assert found[0].parameters == 16
    assert found[1].parameters is None
    assert found[2].path.is_file()


def test_a_label_without_its_script_or_with_another_word_is_refused(corpus: Path) -> None:
    (corpus / "labels.csv").write_text(LABELS.replace("b.py", "no.py"))
    with pytest.raises(FileNotFoundError, match=r"no\.py"):
        labels(corpus)
    (corpus / "labels.csv").write_text(LABELS.replace("sklearn,none", "sklearn,maybe"))
    with pytest.raises(ValueError, match="maybe"):
        labels(corpus)


def test_scores_and_the_baselines_stand_side_by_side(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--corpus", str(corpus)]) == 0
    told = capsys.readouterr().out
    assert "3 scripts" in told
    assert "miss" not in told
    assert "GPU need, macro-F1  1.000" in told
    assert "parameters within 5%  1 of 1" in told
    assert "majority (none)" in told


def test_every_miss_is_printed_with_its_line(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (corpus / "labels.csv").write_text(LABELS.replace("torch,required,16", "keras,none,99"))
    main(["--corpus", str(corpus)])
    told = capsys.readouterr().out
    assert "miss  a.py: frameworks torch, labelled keras" in told
    assert "a.py:2: torch.nn.Linear(3, 4).cuda()" in told
    assert "parameters 16, labelled 99" in told


def test_snippets_and_speed(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--snippets", "20", "--speed", str(corpus)]) == 0
    told = capsys.readouterr().out
    assert "20 snippets: 0 crashed" in told
    assert "3 files: median" in told


def test_nothing_to_do_is_said() -> None:
    with pytest.raises(SystemExit):
        main([])


def test_the_regex_is_fooled_by_what_it_cannot_see() -> None:
    assert baselines.gpu('"""cuda"""\nimport torch') == "required"
    assert baselines.frameworks("import os\nfrom torch import nn") == {"torch"}
    assert baselines.gpu("import keras") == "optional"
    assert baselines.gpu("import sklearn") == "none"
    assert baselines.majority(["a", "b", "b"]) == "b"


def test_macro_f1_gives_each_class_the_same_weight() -> None:
    assert macro_f1(["a", "b"], ["a", "b"]) == 1.0
    assert macro_f1(["a", "a", "a", "a"], ["a", "a", "a", "b"]) == pytest.approx((6 / 7 + 0) / 2)
    assert accuracy([1, 2], [1, 3]) == 0.5
    assert percentile([3.0, 1.0, 2.0], 0.95) == 3.0


def test_the_guide_lists_the_frameworks_that_are_known() -> None:
    guide = (Path(__file__).parents[2] / "benchmarks" / "analysis" / "GUIDE.md").read_text(encoding="utf-8")
    start = guide.index("`torch tensorflow")
    listed = guide[start + 1 : guide.index("`", start + 1)].split()
    assert set(listed) == {name for names in FRAMEWORKS.values() for name in names}


@pytest.fixture
def clones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three scripts of a repository, labelled by their content."""
    rows = []
    for number in range(9):
        script = tmp_path / "them" / "examples" / f"{number}.py"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f"import torch\nprint({number})\n")
        sha1 = hashlib.sha1(script.read_bytes(), usedforsecurity=False).hexdigest()
        rows.append(
            {
                "repository": "them/examples",
                "path": f"{number}.py",
                "sha1": sha1,
                "frameworks": ["torch"],
                "gpu": "none",
            }
        )
    ours = tmp_path / "labels.jsonl"
    ours.write_text("\n".join(json.dumps(row) for row in rows))
    monkeypatch.setattr("benchmarks.analysis.corpus.OURS", ours)
    return tmp_path


def test_a_third_is_held_out_by_its_content(clones: Path) -> None:
    parts = {part: {each.path.name for each in corpus_of(clones, part).labels} for part in Part}
    assert parts[Part.SHOWN] | parts[Part.HELD] == parts[Part.ALL]
    assert not parts[Part.SHOWN] & parts[Part.HELD]
    assert len(parts[Part.ALL]) == 9
    assert parts[Part.HELD]


def test_a_script_that_has_changed_is_left_out_and_named(clones: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (clones / "them" / "examples" / "3.py").write_text("import keras\n")
    assert corpus_of(clones).changed == ("3.py",)
    main(["--corpus", str(clones)])
    told = capsys.readouterr().out
    assert "left out, it has changed since it was labelled: 3.py" in told
    assert "8 scripts" in told


def test_a_script_that_is_missing_is_an_error(clones: Path) -> None:
    (clones / "them" / "examples" / "3.py").unlink()
    with pytest.raises(FileNotFoundError, match=r"3\.py"):
        corpus_of(clones)


def test_our_labels_are_sound() -> None:
    rows = [json.loads(line) for line in OURS.read_text(encoding="utf-8").splitlines()]
    known = {name for names in FRAMEWORKS.values() for name in names}
    assert len(rows) >= 120
    assert len({(row["repository"], row["path"]) for row in rows}) == len(rows)
    for row in rows:
        assert row["gpu"] in ("none", "optional", "required")
        assert set(row["frameworks"]) <= known
        assert len(row["sha1"]) == 40


def test_what_was_labelled_later_is_a_part_of_its_own() -> None:
    rows = [json.loads(line) for line in OURS.read_text(encoding="utf-8").splitlines()]
    second = [row for row in rows if row.get("set") == SECOND]
    assert (len(rows), len(second)) == (200, 60)
    assert len({(row["repository"], row["path"]) for row in rows}) == len({row["sha1"] for row in rows}) == 200
    assert {row["gpu"] for row in second} == {"none", "optional", "required"}


@pytest.mark.parametrize("lines", [800, 2_000])
def test_the_long_program_is_whole_and_read_to_its_end(lines: int) -> None:
    text = whole_program(lines)
    assert text.count("\n") == lines
    found = analyse(Sources({"train.py": text.encode()}, "train.py"))
    assert (found.gpu.value, found.notes) == (GpuNeed.OPTIONAL, ())
    assert (found.batch_size.value, found.epochs.value) == (128, 30)
    assert (found.checkpointing.value, found.resume.value) == (True, True)
    assert found.dataset.value is not None
    assert found.dataset.value.name == "cifar10"
