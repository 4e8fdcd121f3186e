"""Programs for the tests, as text, and the reader on them."""

from __future__ import annotations

import textwrap

from crucible.analysis import Sources, analyse
from crucible.core.routing.profile import Profile


def read(code: str, *arguments: str, entry: str = "train.py", **files: str) -> Profile:
    """The profile of a program; other files by name, with `__` for a slash and `_py` for the ending."""
    every = {entry: code, **{_file(name): text for name, text in files.items()}}
    return analyse(Sources({name: textwrap.dedent(text).encode() for name, text in every.items()}, entry, arguments))


def sources(code: str | bytes, name: str = "a.py") -> Sources:
    """A program of one file, as it is."""
    return Sources({name: code if isinstance(code, bytes) else code.encode()}, name)


def _file(name: str) -> str:
    return name if "." in name else name.replace("__", "/").replace("_py", ".py").replace("_yaml", ".yaml")


LOOP = """
for epoch in range(3):
    optimizer.zero_grad()
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
"""
