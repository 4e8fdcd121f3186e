from __future__ import annotations

from pathlib import Path

import pytest

from crucible.client.request.declarations import Code, Declaration, read_declaration
from crucible.core.errors import BadInput
from crucible.core.job.spec import EnvironmentSpec


def environment(code: Code) -> EnvironmentSpec:
    found = read_declaration(code).environment
    assert found is not None
    return found


def test_a_broken_block_is_told_with_the_line_of_the_file_and_a_fix() -> None:
    code = Code(Path("/nowhere"), "train.py", "print(0)\n# /// script\n# dependencies = [\n# ///\n")
    with pytest.raises(BadInput) as caught:
        read_declaration(code)
    assert caught.value.what == "The `# /// script` block of train.py is not valid TOML."
    assert "end of document" in caught.value.why or "line 3" in caught.value.why
    assert "pep-0723" in caught.value.fix


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("# dependencies = [", "TOML"),
        ('# dependencies = "numpy"', "list"),
        ('# dependencies = ["a"]\n# requires-python = 3', "string"),
    ],
)
def test_a_bad_block_is_bad_input(block: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        read_declaration(Code(text=f"# /// script\n{block}\n# ///\n"))


def test_two_blocks_are_bad_input() -> None:
    block = "# /// script\n# dependencies = ['numpy']\n# ///\n"
    with pytest.raises(BadInput, match="2 `# /// script` blocks"):
        read_declaration(Code(text=f"{block}\n{block}"))


def test_requirements_are_read_with_their_includes(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(
        "# a comment\nnumpy==2.0  # why\n-r more/extra.txt\n--index-url https://x\ntorch \\\n  >=2\n"
    )
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "extra.txt").write_text("rich\n-r ../requirements.txt\n")
    found = environment(Code(tmp_path, "train.py", "x"))
    assert found.requirements == ("numpy==2.0", "rich", "--index-url https://x", "torch    >=2")
    assert found.origin == "requirements.txt"


def test_requirements_beside_the_entry_come_before_those_at_the_top(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "requirements.txt").write_text("top")
    (tmp_path / "sub" / "requirements.txt").write_text("beside")
    code = Code(tmp_path, "sub/train.py", "x", whole=True)
    assert environment(code).requirements == ("beside",)


def test_an_editable_project_is_installed_when_its_folder_travels(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("-e .\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["numpy"]')
    assert environment(Code(tmp_path, "a.py", "x", whole=True)).project == "."
    assert environment(Code(tmp_path, "a.py", "x")).requirements == ("numpy",)


@pytest.mark.parametrize(
    "line",
    ["-r ../outside.txt", "-r nosuch.txt", "./wheel.whl", "-c limits.txt", "-e ../other", "-e .\nnumpy"],
)
def test_requirements_that_cannot_travel_are_bad_input(tmp_path: Path, line: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside.txt").write_text("x")
    (root / "pyproject.toml").write_text("")
    (root / "requirements.txt").write_text(line)
    with pytest.raises(BadInput) as caught:
        read_declaration(Code(root, "a.py", "x", whole=True))
    assert caught.value.fix


def test_pyproject_gives_its_project_or_its_dependencies(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\nname = "x"\nrequires-python = ">=3.10"\ndependencies = ["numpy"]')
    found = environment(Code(tmp_path, "a.py", "x", whole=True))
    assert (found.requirements, found.python) == (("numpy",), ">=3.10")
    file.write_text('[build-system]\nrequires = ["hatchling"]\n[project]\nname = "x"\ndependencies = ["numpy"]')
    assert environment(Code(tmp_path, "a.py", "x", whole=True)).project == "."
    assert environment(Code(tmp_path, "a.py", "x")).requirements == ("numpy",)


def test_a_pyproject_that_is_only_settings_of_tools_declares_nothing(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100")
    assert read_declaration(Code(tmp_path, "a.py", "x")) == Declaration(None)
