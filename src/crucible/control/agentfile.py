"""The agent as one file: `agent-<sha256>.pyz`, built from the sources of wire, agent and inside.

With the sources goes their bytecode for the Python that builds the file, in one piece (`wire/bytecode.py`): a host that
runs on the same Python starts in less than half the time, and any other reads the sources.

Deterministic: the same sources give the same bytes, by the same Python, and the same name. A file of that name is read
all the same: a crash may have torn it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import resources
from importlib.machinery import SourceFileLoader
from importlib.resources.abc import Traversable
from marshal import dumps
from pathlib import Path
from types import CodeType

from crucible import __version__
from crucible.wire.bytecode import CODES, PIECE

ROOMS = ("wire", "agent", "inside")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = """\
import gc

gc.disable()  # loading makes many objects and next to no garbage

from crucible.agent.__main__ import main
from crucible.wire.leaving import leave

gc.freeze()
gc.enable()
leave(main())
"""
_PACKAGE = f'''\
"""Crucible, as far as an agent needs it."""

from crucible.wire.bytecode import load_from

__version__ = "{__version__}"
load_from(__spec__.loader)
'''
_COMPILED = f"{PIECE}.py"
"""The piece. As a source it holds nothing."""
_NOTHING_COMPILED = f"{CODES} = ()\n"
_HERE = "the code of the others"
"""In the piece's own code, where that of the others belongs."""
_GENERATED = ("__main__.py", "crucible/__init__.py")
_FIRST = (*_GENERATED, "crucible/wire/__init__.py", "crucible/wire/bytecode.py")
"""What a host has loaded before it can load from the piece: their bytecode is beside them, as Python knows it."""
_ELSEWHERE = "crucible/inside/"
"""What no host loads: the job's own Python does, from its source."""
_QUICK, _SMALL = 1, 6
"""Levels of compression. What every host reads whole is unpacked quicker the smaller it is."""
_UNCHECKED = (0b01).to_bytes(4, "little")
"""The flags of bytecode that is not compared with its source each time it is loaded: they came together."""
_WITHOUT_REFERENCES = 2
"""The last of marshal's formats that says nothing about the process that writes it."""


def build_agent(folder: Path) -> Path:
    """The path of the agent's file in `folder`, made if it is not there whole.

    A note beside it says what was made of these sources: to look is quicker than to make it again.
    """
    sources = _sources(resources.files("crucible"))
    note = folder / f".made-of-{_hash_of_all(sources)}"
    made = _made_before(note)
    if made is not None:
        return made
    data = agent_bytes(sources)
    path = folder / f"agent-{_hash(data)}.pyz"
    folder.mkdir(parents=True, exist_ok=True)
    _write(path, data)
    _write(note, path.name.encode())
    return path


def agent_bytes(sources: Mapping[str, str] | None = None) -> bytes:
    sources = _sources(resources.files("crucible")) if sources is None else sources
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        files = {**{name: source.encode() for name, source in sources.items()}, **_bytecode(sources)}
        for name in sorted(files):
            level = _SMALL if name == f"{_COMPILED}c" else _QUICK
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), files[name], zipfile.ZIP_DEFLATED, level)
    return b"#!/usr/bin/env python3\n" + out.getvalue()


def _hash_of_all(sources: Mapping[str, str]) -> str:
    """Of the sources, of the Python whose bytecode is beside them, and of how the file is made."""
    here = Path(__file__).read_bytes() if Path(__file__).exists() else b""
    return _hash(repr((importlib.util.MAGIC_NUMBER, sys.flags.optimize, here, sorted(sources.items()))).encode())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _made_before(note: Path) -> Path | None:
    """What the note tells of, if that is there whole."""
    try:
        path = note.with_name(note.read_text("utf-8"))
        return path if path.name == f"agent-{_hash(path.read_bytes())}.pyz" else None
    except (OSError, ValueError):
        return None


def _write(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _sources(package: Traversable) -> dict[str, str]:
    found = {"__main__.py": _MAIN, "crucible/__init__.py": _PACKAGE, _COMPILED: _NOTHING_COMPILED}
    for room in ROOMS:
        found.update(_sources_in(package / room, f"crucible/{room}"))
    return found


def _sources_in(folder: Traversable, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            found.update(_sources_in(entry, f"{prefix}/{entry.name}"))
        elif entry.name.endswith(".py"):
            found[f"{prefix}/{entry.name}"] = entry.read_text("utf-8")
    return found


def _bytecode(sources: Mapping[str, str]) -> dict[str, bytes]:
    """By its name in the file. It only saves time: where it cannot be had, as from a Python without asserts, sources
    alone go along.
    """
    codes = {} if sys.flags.optimize else dict(_codes(sources))
    found = {name: codes.pop(name) for name in _FIRST if name in codes}
    if codes:
        found[_COMPILED] = _piece(codes)
    return {f"{name}c": _head(sources[name]) + dumps(code, _WITHOUT_REFERENCES) for name, code in found.items()}


def _codes(sources: Mapping[str, str]) -> Iterator[tuple[str, CodeType]]:
    """What a host may load and marshal can write: a later Python has among its constants what it cannot."""
    for name in sorted(sources):
        code = None if name == _COMPILED or name.startswith(_ELSEWHERE) else _code(name, sources[name])
        if code is not None:
            code = _moved(code, f"agent.pyz/{name}")
            with suppress(ValueError):
                dumps(code, _WITHOUT_REFERENCES)
                yield name, code


def _piece(codes: Mapping[str, CodeType]) -> CodeType:
    code = compile(f"{CODES} = {_HERE!r}", f"agent.pyz/{_COMPILED}", "exec", dont_inherit=True)
    return code.replace(co_consts=tuple(tuple(codes.items()) if each == _HERE else each for each in code.co_consts))


def _head(source: str) -> bytes:
    return importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(source.encode())


def _code(name: str, source: str) -> CodeType | None:
    """Of a file, from what Python keeps beside it where that is there; None if it was changed meanwhile, or is none."""
    if name in _GENERATED:
        return compile(source, name, "exec", dont_inherit=True)
    package = resources.files("crucible")
    if not isinstance(package, Path):
        return None
    path = package.parent / name
    loader = SourceFileLoader(path.stem, str(path))
    code = loader.get_code(path.stem)
    return code if loader.get_data(str(path)) == source.encode() else None


def _moved(code: CodeType, file: str) -> CodeType:
    """The same code, and all code within it, as if it were compiled from `file`."""
    inner = tuple(_moved(each, file) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=file, co_consts=inner)
