from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterable
from importlib.util import MAGIC_NUMBER
from marshal import dumps
from pathlib import Path

import crucible
from crucible.wire.bytecode import CODES, PIECE

SOURCES = {
    "top/__init__.py": "name = __name__",
    "top/inner/__init__.py": "from top.inner.leaf import said",
    "top/inner/leaf.py": "said = 'from source'\ndef fails():\n    raise ValueError('of the leaf')\n",
    "top/plain.py": "said = 'from source'",
}
BEFORE = (
    f"import sys; sys.path.insert(0, {str(Path(crucible.__file__).parents[1])!r})\n"
    "from zipimport import zipimporter\n"
    "from crucible.wire.bytecode import load_from\n"
    "sys.path.insert(0, sys.argv[1]); load_from(zipimporter(sys.argv[1]))\n"
)


def archive(folder: Path, names: Iterable[str] = SOURCES, magic: bytes = MAGIC_NUMBER) -> Path:
    """With a piece that holds the code of these, each of which says where it is from."""
    code = compile(f"{CODES} = 'codes'", "piece", "exec")
    texts = {name: SOURCES[name].replace("from source", "from bytecode") for name in names}
    held = tuple((name, compile(text, f"archive/{name}", "exec")) for name, text in texts.items())
    code = code.replace(co_consts=tuple(held if each == "codes" else each for each in code.co_consts))
    path = folder / "archive.zip"
    with zipfile.ZipFile(path, "w") as made:
        for name, text in SOURCES.items():
            made.writestr(name, text)
        made.writestr(f"{PIECE}.py", f"{CODES} = ()")
        made.writestr(f"{PIECE}.pyc", magic + b"\1" + bytes(11) + dumps(code))
    return path


def run(path: Path, code: str) -> list[str]:
    command = [sys.executable, "-I", "-c", BEFORE + code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_modules_come_from_the_piece_and_tell_where_their_source_is(tmp_path: Path) -> None:
    path = archive(tmp_path)
    code = (
        "import top.inner, top.plain\n"
        "print(top.inner.said, top.plain.said, top.name, sep='\\n')\n"
        "print(top.inner.__file__, *top.inner.__path__, top.inner.leaf.__package__, top.inner.leaf.__file__, sep='\\n')"
    )
    assert run(path, code) == [
        *("from bytecode", "from bytecode", "top"),
        *(f"{path}/top/inner/__init__.py", f"{path}/top/inner", "top.inner", f"{path}/top/inner/leaf.py"),
    ]


def test_what_is_not_in_it_comes_from_its_source(tmp_path: Path) -> None:
    path = archive(tmp_path, SOURCES.keys() - {"top/inner/leaf.py"})
    code = "import top.inner, top.plain; print(top.inner.said, top.plain.said, sep='\\n')"
    assert run(path, code) == ["from source", "from bytecode"]


def test_another_python_reads_the_sources(tmp_path: Path) -> None:
    path = archive(tmp_path, magic=b"old!")
    code = "import top.inner, top.plain; print(top.inner.said, top.plain.said, sep='\\n')"
    assert run(path, code) == ["from source", "from source"]


def test_a_module_that_is_not_there_is_missed_as_ever(tmp_path: Path) -> None:
    code = "import top\ntry: import top.other\nexcept ModuleNotFoundError as error: print(error.name)"
    assert run(archive(tmp_path), code) == ["top.other"]


def test_a_second_loading_is_from_source(tmp_path: Path) -> None:
    code = "import importlib, top.plain\nprint(importlib.reload(top.plain).said)"
    assert run(archive(tmp_path), code) == ["from source"]


def test_a_traceback_shows_lines_of_the_source(tmp_path: Path) -> None:
    code = (
        "import traceback, top.inner.leaf as leaf\n"
        "try: leaf.fails()\n"
        "except ValueError: print(traceback.format_exc())\n"
        "try: leaf.__loader__.get_source('another')\n"
        "except ImportError as error: print(error.name)"
    )
    said = run(archive(tmp_path), code)
    assert "    raise ValueError('of the leaf')" in said
    assert said[-1] == "another"


def test_a_module_of_it_can_be_run(tmp_path: Path) -> None:
    code = "import runpy\nfor _ in range(2): print(runpy.run_module('top.plain')['said'])"
    assert run(archive(tmp_path), code) == ["from bytecode", "from bytecode"]


def test_what_is_no_archive_is_left_alone(tmp_path: Path) -> None:
    """As where the file was unpacked: its modules are then found as any are."""
    code = "before = list(sys.meta_path); load_from(__loader__); print(sys.meta_path == before)"
    assert run(archive(tmp_path), code) == ["True"]
