"""Make paths and store keys from untrusted names."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

MAX_NAME_BYTES = 1024
MAX_SEGMENT_BYTES = 255

_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class UnsafePath(ValueError):
    """`name` must not become a path; `why` completes the sentence that starts with the name."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name!a} {why}")
        self.name = name
        self.why = why


def safe_name(name: str) -> str:
    """Return the name if it is a plain relative path with `/` between its parts. Raises UnsafePath.

    Checks the text only. Two different safe names never spell the same path (`a//b`, `a/./b` and `a/` are
    refused). Control characters are refused too: such a name can hide in a terminal.
    """
    why = _why_unsafe(name)
    if why is not None:
        raise UnsafePath(name, why)
    return name


def safe_join(root: str | os.PathLike[str], name: str) -> Path:
    """Return `root/name` if the name is safe and no link on its way leads out of `root`. Raises UnsafePath.

    The path is not resolved. It is safe while nobody else changes the folder: if others may write to it, open the
    result without following links.
    """
    joined = Path(root) / safe_name(name)
    if not is_inside(root, joined):
        raise UnsafePath(name, "leads out of its folder through a link")
    return joined


def is_inside(root: str | os.PathLike[str], path: str | os.PathLike[str]) -> bool:
    """Return whether `path`, with all links followed, is `root` or below it. Neither has to exist."""
    top = os.path.realpath(root)
    real = os.path.realpath(path)
    return real == top or real.startswith(top.rstrip(os.sep) + os.sep)


def has_link_loop(path: str | os.PathLike[str]) -> bool:
    """Return whether following the links of `path` fails: a loop, or more than about 40 links."""
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _why_unsafe(name: str) -> str | None:
    if not name:
        return "is empty"
    if "\x00" in name:
        return "has a NUL byte in it"
    if _CONTROL.search(name):
        return "has a control character in it"
    if "\\" in name:
        return "has a backslash in it"
    if name.startswith("/"):
        return "is an absolute path"
    if _DRIVE.match(name):
        return "begins with a drive letter"
    return _why_badly_encoded(name) or _why_bad_parts(name.split("/"))


def _why_badly_encoded(name: str) -> str | None:
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    return f"is longer than {MAX_NAME_BYTES} bytes" if size > MAX_NAME_BYTES else None


def _why_bad_parts(parts: list[str]) -> str | None:
    if ".." in parts:
        return "has '..' in it"
    if "" in parts or "." in parts:
        return "has an empty part or '.' in it"
    if any(len(part.encode("utf-8")) > MAX_SEGMENT_BYTES for part in parts):
        return f"has a part longer than {MAX_SEGMENT_BYTES} bytes"
    return None
