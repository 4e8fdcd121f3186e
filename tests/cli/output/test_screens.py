from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.live import Live

from crucible.cli.output.screens import CRUCIBLE_PREFIX, LiveScreen, LogSplitter
from crucible.core.views.jobs import JobView


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def split(*texts: str) -> tuple[str, str]:
    """What is the program's, and what is ours."""
    splitter = LogSplitter()
    pieces = [piece for text in texts for piece in splitter.feed(text)]
    pieces.extend(splitter.finish())
    return tuple("".join(p.text for p in pieces if p.from_crucible is ours) for ours in (False, True))  # type: ignore[return-value]


def test_lines_are_told_apart() -> None:
    assert split("a\n[crucible] x\nb\n") == ("a\nb\n", "[crucible] x\n")
    assert split("a [crucible] x\n[crucible]\n[cruci") == ("a [crucible] x\n[crucible]\n[cruci", "")


@pytest.mark.parametrize("at", range(1, 20))
def test_it_does_not_matter_where_pieces_are_cut(at: int) -> None:
    text = "a\n[crucible] x\nb"
    assert split(text[:at], text[at:]) == ("a\nb", "[crucible] x\n")


@given(st.lists(st.sampled_from(["a", "\n", "[cru", "cible] ", CRUCIBLE_PREFIX, "\r", "é"])))
def test_nothing_is_lost(texts: list[str]) -> None:
    theirs, ours = split(*texts)
    whole = "".join(texts)
    lines = whole.split("\n")
    assert len(theirs) + len(ours) == len(whole)
    assert ours.count("\n") <= sum(line.startswith(CRUCIBLE_PREFIX) for line in lines)


def test_what_can_be_told_is_not_held_back() -> None:
    splitter = LogSplitter()
    assert [piece.text for piece in splitter.feed("50%")] == ["50%"]
    assert [piece.text for piece in splitter.feed("\r60%")] == ["\r60%"]


def test_the_live_line_and_what_scrolls_above_it_do_not_command_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", Terminal())
    hostile = "\x1b]0;owned\x07\x9b2J\u202e"
    view = JobView(id="job-1", status="queued", phase="queued", waiting=f"for {hostile}")
    with Live(console=Console(file=terminal, force_terminal=True, width=200), auto_refresh=False) as live:
        screen = LiveScreen(live)
        screen.write_notice(f"Attempt 1 ended: {hostile}")
        screen.write_output(f"\x1b[31mred\x1b[0m {hostile}shown\n{CRUCIBLE_PREFIX}{hostile}\n")
        screen.update_status(view, None)
        live.refresh()
        screen.finish()
    written = terminal.getvalue()
    assert not any(bad in written for bad in ("\x1b]", "\x9b", "\x07", "\u202eowned"))
    assert r"Attempt 1 ended: \x1b]0;owned" in written
    assert r"waiting: for \x1b]0;owned" in written
    assert "\x1b[31mred" in written
