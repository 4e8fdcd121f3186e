"""Makes text safe to print: a terminal obeys what it is sent, and much of it was written by others.

Names, notes, commands and reasons are shown with their control and format characters escaped, as `\\x1b`. A program's
output keeps what programs usually print, and loses what could command the terminal.
"""

from __future__ import annotations

import re
import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters (C1 too), format characters such as bidi overrides, lone surrogates, separators of lines."""

_SUSPECT = re.compile(r"[^ -~]")


def escape_block(text: str) -> str:
    """Escape what a terminal would obey or hide; line ends and tabs stay."""
    return _escape(text.replace("\r\n", "\n"), keep="\n\t")


def escape_line(text: str) -> str:
    """Escape what a terminal would obey or hide, line ends and tabs too: for one cell, field or line."""
    return _escape(text, keep="")


def escape_json(text: str) -> str:
    """Escape the same in JSON text, in the way of JSON: its value stays the same."""
    return _SUSPECT.sub(lambda match: _json_escape(match[0]) if _is_unsafe(match[0]) else match[0], text)


def _escape(text: str, keep: str) -> str:
    def shown(match: re.Match[str]) -> str:
        character = match[0]
        safe = character in keep or not _is_unsafe(character)
        return character if safe else character.encode("unicode_escape").decode()

    return _SUSPECT.sub(shown, text)


def _is_unsafe(character: str) -> bool:
    return unicodedata.category(character) in _UNSAFE


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


_CSI = r"(?:\x1b\[|\x9b)"
_STRING = r"(?:\x1b[]PX^_]|[\x90\x98\x9d-\x9f])[^\n\x07\x1b\x9c]*+"
"""The start of a title, link, clipboard or device string. A terminal waits for its end; here a line end ends it too."""

_SEQUENCE = re.compile(
    rf"{_CSI}[0-?]*+[ -/]*+[@-~]"
    rf"|{_STRING}(?:\x07|\x9c|\x1b\\|(?=\n)|(?=\x1b[^\\]))"
    rf"|(?P<unfinished>(?:{_CSI}[0-?]*+[ -/]*+|{_STRING}\x1b?|\x1b[ -/]*+)\Z)"
    r"|\x1b[ -/]*+[0-~]?"
    r"|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_KEPT = re.compile(r"\x1b\[(?:[0-9;:]*m|[0-9]*[A-GK]|0?J|\?25[hl])")
"""Colours, and what progress bars use: moving the cursor, erasing the line or what is below, hiding the cursor."""

_LONGEST = 64 * 1024
"""How much of an unfinished sequence is kept until its end comes."""


class ProgramText:
    """Drops from a program's output, as it comes, what could command the terminal.

    Text, line ends, tabs, backspaces, carriage returns, colours and the sequences of progress bars stay. A sequence
    may be cut anywhere between two pieces.
    """

    def __init__(self) -> None:
        self._unfinished = ""

    def feed(self, text: str) -> str:
        text, self._unfinished = self._unfinished + text, ""
        return _SEQUENCE.sub(self._filter, text)

    def _filter(self, match: re.Match[str]) -> str:
        found = match[0]
        if match["unfinished"] is not None:
            self._unfinished = found if len(found) <= _LONGEST else ""
            return ""
        return found if _KEPT.fullmatch(found) else ""


def last_state(line: str) -> str:
    """Return what a line of output shows at its end: a progress bar redraws itself after each carriage return."""
    return line.removesuffix("\r").rpartition("\r")[2]


def plain_line(line: str) -> str:
    """Return what a line of a program's output shows at its end, without colours and other sequences."""
    return _SEQUENCE.sub("", last_state(line))
