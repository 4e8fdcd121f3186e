from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from tests.client.payload.conftest import Ask, names

from crucible.client.payload import make_payload
from crucible.client.payload.notebook import to_script
from crucible.core.errors import BadInput
from crucible.core.job.spec import SourceKind


def write(folder: Path, *cells: str, name: str = "study.ipynb") -> None:
    made = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": cell} for cell in cells
    ]
    text = {"cell_type": "markdown", "metadata": {}, "source": "# Title"}
    notebook = {"cells": [text, *made], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    (folder / name).write_text(json.dumps(notebook))


def test_code_cells_become_a_script_in_order(folder: Path, ask: Ask) -> None:
    write(folder, "import helper\nx = 1", "print(x)")
    (folder / "helper.py").write_text("")
    payload = make_payload("study.ipynb", ask(arguments=("a",)))
    assert payload.command == ("{python}", "study.py", "a")
    assert names(payload) == ["helper.py", "study.py"]
    assert payload.source.kind is SourceKind.NOTEBOOK
    assert payload.entries is not None
    code = payload.entries[0].source
    assert isinstance(code, bytes)
    assert code.index(b"x = 1") < code.index(b"print(x)")
    assert b"Title" not in code


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("%matplotlib inline\nx = 1", "pass  # left out: %matplotlib inline\nx = 1"),
        ("if x:\n    %time f()", "if x:\n    pass  # left out: %time f()"),
        ("!ls -l", "subprocess.run('ls -l', shell=True)"),
        ("files = !ls", "capture_output=True, text=True).stdout.splitlines()"),
        ("%%bash\necho hi", "subprocess.run(['bash', '-c', 'echo hi'], check=True)"),
        ("%%time\nx = 1", "# left out: %%time\nx = 1"),
        ("%%html\n<b>", "# left out: <b>"),
        ("%%writefile a.txt\nhello", "_file.write('hello')"),
        ("model?", "pass  # left out: model?"),
        ("x = 5 % 3\ny = '''\n%s\n'''", "x = 5 % 3\ny = '''\n%s\n'''"),
    ],
)
def test_magics_are_turned_into_python(cell: str, expected: str) -> None:
    script = to_script((cell,), "n.ipynb")
    assert expected in script
    ast.parse(script)


def test_shell_and_display_work_without_ipython() -> None:
    script = to_script(("!true", "display(1)"), "n.ipynb")
    assert "import subprocess" in script
    assert "display = print" in script


@pytest.mark.parametrize("target", ["a.ipynb", "a.py"])
def test_an_entry_is_refused_where_there_is_nothing_to_choose_from(folder: Path, ask: Ask, target: str) -> None:
    (folder / "a.py").write_text("print(1)")
    write(folder, "x = 1", name="a.ipynb")
    with pytest.raises(BadInput, match=r"has no entry 'b\.py'.*Only directories and repositories"):
        make_payload(target, ask(entry="b.py"))


def test_installing_in_the_notebook_is_noted(folder: Path, ask: Ask) -> None:
    write(folder, "%pip install numpy", "print(1)")
    assert "installs packages" in make_payload("study.ipynb", ask()).notes[0]


def test_a_script_block_in_a_cell_declares_the_environment(folder: Path, ask: Ask) -> None:
    write(folder, '# /// script\n# dependencies = ["numpy"]\n# ///\nprint(1)')
    assert make_payload("study.ipynb", ask()).environment.requirements == ("numpy",)


@pytest.mark.parametrize("content", ["not json", "[]", '{"a": 1}', '{"cells": 3, "nbformat": 4}', "{}"])
def test_what_is_no_notebook_is_bad_input(folder: Path, ask: Ask, content: str) -> None:
    (folder / "study.ipynb").write_text(content)
    with pytest.raises(BadInput, match=r"not a notebook|no code"):
        make_payload("study.ipynb", ask())


def test_an_empty_file_and_a_notebook_without_code_are_bad_input(folder: Path, ask: Ask) -> None:
    (folder / "study.ipynb").write_text("")
    with pytest.raises(BadInput, match="empty"):
        make_payload("study.ipynb", ask())
    write(folder, " ")
    with pytest.raises(BadInput, match="no code"):
        make_payload("study.ipynb", ask())


def test_text_that_is_not_utf8_is_bad_input(folder: Path, ask: Ask) -> None:
    (folder / "study.ipynb").write_bytes(b'{"cells": "\xff"}')
    with pytest.raises(BadInput, match="not UTF-8"):
        make_payload("study.ipynb", ask())


def test_an_older_notebook_is_read_without_a_word(
    folder: Path, ask: Ask, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    write(folder, "print(1)")
    content = json.loads((folder / "study.ipynb").read_text())
    (folder / "study.ipynb").write_text(json.dumps({**content, "nbformat_minor": 5}))
    assert make_payload("study.ipynb", ask()).notes == ()
    assert capfd.readouterr().err == ""
    assert not recwarn.list
