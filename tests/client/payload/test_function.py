from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.payload.conftest import Ask, names

from crucible.client.payload import Payload
from crucible.client.payload.function import NAME, RESULT, from_function
from crucible.core.errors import BadInput

MAIN = """\
from __future__ import annotations

import math
import helper
try:
    import nosuchmodule
except ImportError:
    nosuchmodule = None

FACTOR = 2
UNUSED = print("unused code ran")
job = "a name that is also a variable of the function"

def twice(x: Size) -> int:
    return FACTOR * x

class Size(int):
    unit = math.pi

def traced(function):
    return function

@traced
def work(x, *, more=FACTOR):
    job = twice(x)
    return {"value": helper.plus_one(job) + more, "there": nosuchmodule is None}

if __name__ == "__main__":
    work = None
    print("the script itself ran")
"""


@pytest.fixture
def load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Any]]:
    """Writes a module into `folder` and imports it."""
    monkeypatch.syspath_prepend(str(folder))
    made: list[str] = []

    def importing(name: str, text: str) -> Any:
        path = folder / (name.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        made.append(name)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield importing
    for name in made:
        sys.modules.pop(name, None)
        sys.modules.pop(name.partition(".")[0], None)


def run(payload: Payload, folder: Path) -> subprocess.CompletedProcess[str]:
    """The payload as a job would run it, in a folder that has its files and nothing else."""
    for entry in payload.entries or ():
        target = folder / entry.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(entry.source.read_bytes() if isinstance(entry.source, Path) else bytes(entry.source))  # type: ignore[arg-type]
    env = {"PATH": os.environ["PATH"], "CRUCIBLE_OUTPUT_DIR": str(folder)}
    command = [sys.executable, *payload.command[1:]]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def value(payload: Payload, folder: Path) -> Any:
    folder.mkdir()
    done = run(payload, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    return json.loads((folder / RESULT).read_text())


def test_a_function_of_a_module_is_imported_there(load: Any, ask: Ask, tmp_path: Path) -> None:
    load("neighbour", "def triple(x):\n    return 3 * x\n")
    module = load("mine", "import neighbour\n\ndef work(x, y=1):\n    return [neighbour.triple(x), y]\n")
    payload = from_function(module.work, ask(arguments=[2], kwargs={"y": 5}))
    assert names(payload) == [NAME, "mine.py", "neighbour.py"]
    assert payload.command == ("{python}", NAME)
    assert value(payload, tmp_path / "job") == [6, 5]


def test_a_function_of_a_package_brings_the_package(load: Any, ask: Ask, tmp_path: Path, folder: Path) -> None:
    (folder / "box").mkdir()
    (folder / "box" / "__init__.py").write_text("")
    (folder / "box" / "tools.py").write_text("ONE = 1\n")
    module = load("box.inner", "from .tools import ONE\n\nasync def work():\n    return ONE\n")
    payload = from_function(module.work, ask())
    assert "box" in {name.partition("/")[0] for name in names(payload)}
    assert value(payload, tmp_path / "job") == 1


@pytest.fixture
def script(load: Any, folder: Path) -> Any:
    """A module that takes itself for the running script."""
    (folder / "helper.py").write_text("def plus_one(x):\n    return x + 1\n")
    (folder / "script.py").write_text(MAIN)
    space: dict[str, Any] = {"__name__": "__main__"}
    code = compile(MAIN.replace("work = None", "pass"), str(folder / "script.py"), "exec")
    exec(code, space)
    return space["work"]


def test_of_the_running_script_only_what_the_function_needs_is_taken(
    script: Any, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = from_function(script, ask(arguments=[3], kwargs={"more": 10}))
    assert names(payload) == [NAME, "helper.py"]
    assert value(payload, tmp_path / "job") == {"value": 17, "there": True}


def test_what_was_returned_must_be_json(load: Any, ask: Ask, tmp_path: Path) -> None:
    module = load("returns", "def work():\n    return {1, 2}\n")
    (tmp_path / "job").mkdir()
    done = run(from_function(module.work, ask()), tmp_path / "job")
    assert done.returncode == 1
    assert "work returned a value that is not JSON" in done.stderr
    assert not (tmp_path / "job" / RESULT).exists()


class Thing:
    def method(self) -> None: ...


def generates() -> Iterator[int]:
    yield 1


def outer() -> Callable[[], int]:
    held = 3

    def inner() -> int:
        return held

    return inner


def interactive() -> Any:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("def typed(): return 1", "<stdin>", "exec"), space)
    return space["typed"]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda: 1, "lambda"),
        (outer(), "closure"),
        (Thing().method, "not a plain function"),
        (Thing.method, "class"),
        (Thing, "not a plain function"),
        (functools.partial(outer), "not a plain function"),
        (len, "not a plain function"),
        (generates, "generator"),
        (interactive(), "interactively"),
    ],
)
def test_what_has_no_source_of_its_own_is_refused_with_the_reason(function: Any, why: str, ask: Ask) -> None:
    with pytest.raises(BadInput, match=why) as raised:
        from_function(function, ask())
    assert "cannot be submitted" in raised.value.what
    assert raised.value.fix


def test_a_function_of_an_installed_package_is_refused(ask: Ask) -> None:
    with pytest.raises(BadInput, match="from json import dumps"):
        from_function(json.dumps, ask(arguments=[1]))


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ([], {}, "missing a required argument"),
        ([1], {"nosuch": 1}, "unexpected keyword"),
        ([object()], {}, "never as pickles"),
        ([{1, 2}], {}, "never as pickles"),
    ],
)
def test_arguments_that_do_not_fit_or_cannot_travel(
    args: list[Any], kwargs: dict[str, Any], why: str, load: Any, ask: Ask
) -> None:
    module = load("takes", "def work(x):\n    return x\n")
    with pytest.raises(BadInput, match=why):
        from_function(module.work, ask(arguments=args, kwargs=kwargs))


def test_a_function_cannot_run_in_place(load: Any, ask: Ask) -> None:
    with pytest.raises(BadInput, match="in place"):
        from_function(load("placed", "def work():\n    return 1\n").work, ask(in_place=True))


def test_a_script_that_changed_meanwhile_is_told(script: Any, ask: Ask, folder: Path) -> None:
    (folder / "script.py").write_text("other = 1\n")
    with pytest.raises(BadInput, match="no longer defines it"):
        from_function(script, ask(arguments=[1]))
    (folder / "script.py").write_text("def (\n")
    with pytest.raises(BadInput, match="no longer valid"):
        from_function(script, ask(arguments=[1]))
