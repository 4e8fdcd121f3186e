"""The agent as one file: `agent-<sha256>.pyz`, built from the sources of wire, agent and inside.

Deterministic: the same sources and the same Python give the same bytes and the same name. A file of that name is
compared all the same: a crash may have torn it.

Beside each source is its bytecode. A machine with our version of Python starts in half the time; one with another
version passes it over, as its importer does with all bytecode that is not its own, and compiles the source.
"""

from __future__ import annotations

import hashlib
import io
import marshal
import os
import zipfile
from importlib import resources
from importlib.machinery import SourceFileLoader
from importlib.resources.abc import Traversable
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from types import CodeType

from crucible import __version__

ROOMS = ("wire", "agent", "inside")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_QUICK = 1
"""How hard the file is packed: every start of a server waits for it."""
_UNCHECKED = (1).to_bytes(4, "little")
"""Bytecode that is told by a hash of its source, and taken without reading that."""
_WITHOUT_REFERENCES = 2
"""The version of marshal in which the same code has the same bytes, whatever else the process has in memory."""
_MAIN = "from crucible.agent.__main__ import main\n\nraise SystemExit(main())\n"
_PACKAGE = f'"""Crucible, as far as an agent needs it."""\n\n__version__ = "{__version__}"\n'


def build_agent(folder: Path) -> Path:
    """The path of the agent's file in `folder`, made if it is not there whole."""
    data = agent_bytes()
    path = folder / f"agent-{hashlib.sha256(data).hexdigest()}.pyz"
    if not _holds(path, data):
        folder.mkdir(parents=True, exist_ok=True)
        _write(path, data)
    return path


def agent_bytes() -> bytes:
    files = {"__main__.py": _MAIN.encode(), "crucible/__init__.py": _PACKAGE.encode()}
    package = resources.files("crucible")
    for room in ROOMS:
        files.update(_sources(package / room, f"crucible/{room}"))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), files[name], zipfile.ZIP_DEFLATED, _QUICK)
    return b"#!/usr/bin/env python3\n" + out.getvalue()


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except FileNotFoundError:
        return False


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


def _sources(folder: Traversable, prefix: str) -> dict[str, bytes]:
    """With their bytecode."""
    found: dict[str, bytes] = {}
    for entry in folder.iterdir():
        name = f"{prefix}/{entry.name}"
        if entry.is_dir() and entry.name != "__pycache__":
            found.update(_sources(entry, name))
        elif entry.name.endswith(".py"):
            found[name] = entry.read_bytes()
            found[f"{name}c"] = _bytecode(entry, name, found[name])
    return found


def _bytecode(entry: Traversable, name: str, source: bytes) -> bytes:
    code = _cached(entry) or compile(source, name, "exec", dont_inherit=True)
    return MAGIC_NUMBER + _UNCHECKED + source_hash(source) + marshal.dumps(_moved(code, name), _WITHOUT_REFERENCES)


def _cached(entry: Traversable) -> CodeType | None:
    """What Python keeps of the file itself, compiled now if it keeps nothing: that takes ten times as long."""
    return SourceFileLoader(entry.stem, str(entry)).get_code(entry.stem) if isinstance(entry, Path) else None


def _moved(code: CodeType, name: str) -> CodeType:
    """Without the folder it was compiled in, which is not the machine's."""
    inner = tuple(_moved(one, name) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=name, co_consts=inner)
