"""The results file keeps each row's last run, and says so when it cannot be read."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from benchmarks.prove.environment import Source, this_machine, this_source
from benchmarks.prove.results import Results, load, save
from tests.benchmarks.prove.sample import RESULT

from crucible.core.errors import Trouble


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "results" / "prove.json"
    save(path, Results().having("kill9", RESULT))
    assert load(path).rows == {"kill9": RESULT}
    assert [each.name for each in path.parent.iterdir()] == ["prove.json"]


def test_a_row_that_is_run_again_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    both = Results().having("kill9", RESULT).having("postgres", RESULT)
    again = RESULT.model_copy(update={"seconds": 5.0})
    assert both.having("kill9", again).rows == {"kill9": again, "postgres": RESULT}
    assert both.rows["kill9"] == RESULT


def test_no_file_means_that_nothing_was_run(tmp_path: Path) -> None:
    assert load(tmp_path / "none.json") == Results()


@pytest.mark.parametrize("damage", ["", "{", '{"rows": {"kill9": {"seconds": 1}}}', '{"lines": {}}', "[]"])
def test_a_damaged_file_is_named_with_the_way_out(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "prove.json"
    path.write_text(damage)
    with pytest.raises(Trouble, match=r"prove\.json are damaged.*git checkout -- "):
        load(path)


def test_the_machine_is_described_and_not_named() -> None:
    told = json.loads(this_machine().model_dump_json())
    assert set(told) == {"cores", "memory_gib", "python", "kernel"}
    assert told["cores"] >= 1
    assert told["memory_gib"] > 0


class TestSource:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        (tmp_path / "code.py").write_text("1\n")
        self.git(tmp_path, "init", "-q")
        self.git(tmp_path, "add", ".")
        self.git(tmp_path, "commit", "-qm", "one")
        return tmp_path

    def git(self, tree: Path, *words: str) -> None:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=tree, check=True)

    def test_a_clean_tree(self, tree: Path) -> None:
        source = this_source(tree)
        assert source.clean
        assert source.commit is not None
        assert len(source.commit) == 40

    @pytest.mark.parametrize("name", ["code.py", "new.py"])
    def test_a_change_or_a_new_file_makes_it_another(self, tree: Path, name: str) -> None:
        (tree / name).write_text("2\n")
        assert not this_source(tree).clean

    def test_what_a_run_writes_itself_does_not_count(self, tree: Path) -> None:
        for name in ("benchmarks/results/prove.json", "docs/reliability.md"):
            (tree / name).parent.mkdir(parents=True)
            (tree / name).write_text("new")
        assert this_source(tree).clean

    def test_without_git_there_is_no_commit(self, tmp_path: Path) -> None:
        assert this_source(tmp_path) == Source(commit=None, clean=False)
