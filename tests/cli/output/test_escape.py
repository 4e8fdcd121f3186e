"""What reaches a terminal does not command it."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crucible.cli
from crucible.cli.output.escape import ProgramText, escape_block, escape_json, escape_line, plain_line
from crucible.cli.output.output import Output, print_error
from crucible.core.errors import BadInput

TITLE = "\x1b]0;owned\x07"
CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x1b\\"
HOSTILE = f"a{TITLE}\x9b2J\x90q\x9c\u202eb\u200b\u2028\U000e0041\ud800\x7f\r\n\tc"
ESCAPED = r"a\x1b]0;owned\x07\x9b2J\x90q\x9c\u202eb\u200b\u2028\U000e0041\ud800\x7f"
PIECES = ["a", "\n", "\r", "\x1b", "[", "]", "31m", "2J", "?25l", "0;x", "\x07", "\\", "P", "\x9b", "\x9c", "\x9d", ";"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def program(*texts: str) -> str:
    shown = ProgramText()
    return "".join(map(shown.feed, texts))


def test_control_and_format_characters_are_shown_escaped() -> None:
    assert escape_line(HOSTILE) == ESCAPED + r"\r\n\tc"
    assert escape_block(HOSTILE) == f"{ESCAPED}\n\tc"
    assert escape_block("é 日本 ok\n") == "é 日本 ok\n"


@given(st.text() | st.just(HOSTILE))
def test_json_keeps_its_value_without_the_characters(text: str) -> None:
    printed = escape_json(json.dumps([text], ensure_ascii=False))
    assert json.loads(printed) == [text]
    assert escape_line(printed) == printed


def test_every_way_to_print_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.table((HOSTILE, "B"), [(HOSTILE, "b")])
    out.fields([("Name", HOSTILE), ("Notes", (HOSTILE, "d"))])
    out.data(HOSTILE)
    out.say(HOSTILE)
    out.json({"a": HOSTILE})
    print_error(BadInput(HOSTILE, why=HOSTILE, fix=HOSTILE), as_json=False)
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert text == escape_block(text)
        assert "owned" in text


def test_a_value_cannot_pretend_to_be_the_next_line(capsys: pytest.CaptureFixture[str]) -> None:
    Output().fields([("Name", "a\nStatus  completed"), ("Notes", ("alice: one\nbob: two", "carol: three"))])
    assert capsys.readouterr().out.splitlines() == [
        r"Name   a\nStatus  completed",
        "Notes  alice: one",
        "         bob: two",
        "       carol: three",
    ]


@pytest.mark.parametrize(
    "kept",
    [
        "a\tb\n",
        "10%\r20%",
        "\x08\x08",
        "\x1b[31mred\x1b[0m",
        "\x1b[38;5;196mx",
        "\x1b[2K\x1b[1A",
        "\x1b[?25l",
        "\x1b[K",
        "é日",
    ],
)
def test_what_programs_usually_print_is_kept(kept: str) -> None:
    assert program(kept) == kept


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (f"a{TITLE}b", "ab"),
        (f"a{CLIPBOARD}b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1bPq#0\x1b\\b", "ab"),
        ("a\x9d0;owned\x9cb", "ab"),
        ("a\x1b[6nb\x1b[c", "ab"),
        ("a\x9b6nb", "ab"),
        ("\x1b[2J\x1b[H\x1b[3Ja", "a"),
        ("\x1bca\x0e\x05\x07", "a"),
        ("\x1b(Ba", "a"),
        ("\x1b]0;never ended\nnext", "\nnext"),
        ("\x1b[?1049ha", "a"),
    ],
)
def test_what_could_command_the_terminal_is_dropped(written: str, shown: str) -> None:
    assert program(written) == shown
    for at in range(len(written)):
        assert program(written[:at], written[at:]) == shown


@given(st.lists(st.sampled_from(PIECES)))
def test_it_does_not_matter_how_output_is_cut(pieces: list[str]) -> None:
    shown = program(*pieces)
    assert shown == program("".join(pieces))
    assert "\x1b" not in re.sub(r"\x1b\[([0-9;]*m|\?25l)", "", shown)


def test_a_sequence_without_end_is_not_kept_for_ever() -> None:
    shown = ProgramText()
    for _ in range(40):
        assert shown.feed("\x1b]" + "x" * 10_000).strip("x") == ""
    assert shown.feed("\nafter") == "\nafter"


def test_output_is_filtered_on_a_terminal_and_byte_for_byte_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, shown in ((Terminal(), "a\x1b[31mb"), (io.StringIO(), f"a{TITLE}\x1b[31mb")):
        monkeypatch.setattr("sys.stdout", stream)
        Output().program_output(f"a{TITLE}\x1b[31mb")
        assert stream.getvalue() == shown


def test_the_last_state_of_a_line_without_colours() -> None:
    assert plain_line("10%\r\x1b[32m20%\x1b[0m\r") == "20%"


def _modules() -> Iterator[Path]:
    folder = Path(crucible.cli.__file__).parent
    yield from (path for path in folder.rglob("*.py") if path.parent.name != "output")


@pytest.mark.parametrize("path", list(_modules()), ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_commands_print_through_the_output_alone(path: Path) -> None:
    """Only an attached terminal passes bytes on, and the version needs no escaping."""
    if path.stem in ("terminal", "main"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("print", "typer.echo", "typer.secho", "typer.confirm"), f"line {node.lineno}"
            assert not re.fullmatch(r"sys\.(stdout|stderr)(\.buffer)?\.write(lines)?", called), f"line {node.lineno}"
