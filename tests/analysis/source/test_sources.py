from __future__ import annotations

import json

import pytest

from crucible.analysis.source.notebook import read_notebook
from crucible.analysis.source.sources import MAX_BYTES, MAX_LINES, Sources, decode


def test_lines_are_found_again_as_evidence() -> None:
    text = decode("train.py", b"import torch\n  x = 1  \n")
    assert str(text.evidence(2)) == "train.py:2: x = 1"
    assert text.evidence(99).text == ""


@pytest.mark.parametrize("data", [b"", b"  \n\t\n"])
def test_an_empty_file_says_so(data: bytes) -> None:
    assert decode("a.py", data).notes == ("a.py is empty.",)


@pytest.mark.parametrize("data", [b"\x00\x01\x02", bytes(range(128, 256)) * 4, b"\x7fELF\x00\x00"])
def test_a_binary_file_says_so(data: bytes) -> None:
    text = decode("a.py", data)
    assert text.lines == ()
    assert "binary" in text.notes[0]


def test_a_file_that_is_mostly_text_is_read_and_the_rest_is_said() -> None:
    text = decode("a.py", b"x = 1  # caf" + b"\xe9" + b"\ny = 2\n" * 20)
    assert "y = 2" in text.lines
    assert "not UTF-8" in text.notes[0]


def test_a_byte_order_mark_and_other_line_ends_are_no_trouble() -> None:
    assert decode("a.py", b"\xef\xbb\xbfx = 1\r\ny = 2\rz = 3").lines == ("x = 1", "y = 2", "z = 3")


def test_what_is_too_much_is_cut_and_said() -> None:
    assert len(decode("a.py", b"x\n" * (MAX_LINES + 5)).lines) == MAX_LINES - 1
    assert "1 MB" in decode("a.py", b"x" * (MAX_BYTES + 1)).notes[0]


def test_modules_are_found_beside_the_entry_and_at_the_top() -> None:
    files = dict.fromkeys(("src/run.py", "src/model.py", "data/__init__.py", "src/lib/a.py"), b"")
    sources = Sources(files, "src/run.py")
    assert sources.module("model") == "src/model.py"
    assert sources.module("data") == "data/__init__.py"
    assert sources.module("lib.a") == "src/lib/a.py"
    assert sources.module("torch") is None


def notebook(*cells: object) -> bytes:
    return json.dumps({"cells": list(cells), "nbformat": 4}).encode()


def code(source: object) -> dict[str, object]:
    return {"cell_type": "code", "source": source}


def test_a_notebook_is_its_code_cells_and_lines_know_their_cell() -> None:
    text = read_notebook(
        "a.ipynb",
        notebook(code("import torch"), {"cell_type": "markdown", "source": "# torch.cuda"}, code(["x = 1\n", "y = 2"])),
    )
    assert text.lines == ("import torch", "x = 1", "y = 2")
    assert str(text.evidence(3)) == "a.ipynb#cell2:2: y = 2"


def test_magics_are_no_code_and_keep_their_line() -> None:
    text = read_notebook(
        "a.ipynb",
        notebook(code("!pip install torch\n%matplotlib inline\nx = 1\nfiles = !ls\nx?"), code("%%bash\ntorchrun a.py")),
    )
    assert [line for line in text.lines if line] == ["x = 1"]
    assert text.evidence(3).line == 3


def test_a_block_of_magics_stays_a_block_and_timed_cells_are_code() -> None:
    text = read_notebook("a.ipynb", notebook(code("if x:\n    !ls"), code("%%time\ny = 2")))
    assert "    pass" in text.lines
    assert "y = 2" in text.lines


def test_the_old_format_is_read_too() -> None:
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": ["x = 1"]}]}]}
    assert read_notebook("a.ipynb", json.dumps(old).encode()).lines == ("x = 1",)


@pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'"x"', b"null", b'{"cells": 3}', b"\xff\xfe"])
def test_what_is_no_notebook_says_so(data: bytes) -> None:
    text = read_notebook("a.ipynb", data)
    assert text.lines == ()
    assert "not a notebook" in text.notes[0] or "no code" in text.notes[0]
