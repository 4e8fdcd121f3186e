from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.payload.conftest import Ask, Git, names

from crucible.client.payload import from_code, from_shell
from crucible.core.errors import BadInput
from crucible.core.job.spec import SourceKind


def test_code_is_sent_as_a_file(ask: Ask) -> None:
    payload = from_code("print('ä')", ask(arguments=("x",)))
    assert payload.command == ("{python}", "main.py", "x")
    assert payload.entries is not None
    assert payload.entries[0].source == "print('ä')".encode()
    assert payload.source.kind is SourceKind.CODE


def test_code_may_bring_files(folder: Path, ask: Ask) -> None:
    (folder / "lib.py").write_text("")
    assert names(from_code("import lib", ask(include=("lib.py",)))) == ["lib.py", "main.py"]
    (folder / "main.py").write_text("")
    with pytest.raises(BadInput, match="Rename"):
        from_code("import lib", ask(include=("*.py",)))


def test_code_in_place_needs_no_file(folder: Path, ask: Ask) -> None:
    payload = from_code("print(1)", ask(in_place=True))
    assert payload.command == ("{python}", "-c", "print(1)")
    assert (payload.entries, payload.in_place) == (None, str(folder))


def test_code_declares_its_environment(ask: Ask) -> None:
    code = '# /// script\n# dependencies = ["numpy"]\n# ///\nimport numpy\n'
    assert from_code(code, ask()).environment.requirements == ("numpy",)


@pytest.mark.parametrize("code", ["", "  \n"])
def test_empty_code_is_refused(ask: Ask, code: str) -> None:
    with pytest.raises(BadInput, match="empty"):
        from_code(code, ask())


def test_code_from_a_pipe_that_is_not_utf8_is_refused(ask: Ask) -> None:
    with pytest.raises(BadInput, match="not utf-8"):
        from_code(b"print('\xe9')".decode("utf-8", "surrogateescape"), ask())


def test_a_shell_command_sends_nothing_by_itself(folder: Path, ask: Ask) -> None:
    (folder / "Makefile").write_text("")
    payload = from_shell("make train", ask())
    assert payload.command == ("/bin/sh", "-c", "make train")
    assert payload.entries is None
    assert payload.source.kind is SourceKind.SHELL


def test_a_shell_command_may_bring_the_folder(folder: Path, ask: Ask, git: Git) -> None:
    (folder / "Makefile").write_text("")
    (folder / "junk").write_text("")
    (folder / ".gitignore").write_text("junk\n")
    git("init", "-q")
    assert names(from_shell("make", ask(include=(".",)))) == [".gitignore", "Makefile"]
    assert names(from_shell("make", ask(include=("Makefile",)))) == ["Makefile"]


def test_arguments_are_the_shells_positional_ones(ask: Ask) -> None:
    assert from_shell('echo "$1"', ask(arguments=("a b",))).command == (
        "/bin/sh",
        "-c",
        'echo "$1"',
        "sh",
        "a b",
    )


def test_an_empty_command_is_refused(ask: Ask) -> None:
    with pytest.raises(BadInput, match="empty"):
        from_shell("  ", ask())
