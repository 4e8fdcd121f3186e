"""Provide `import crucible` to a Python: the package that the user installed, else the copy that the agent brings."""

from __future__ import annotations

import zipfile
from pathlib import Path

PACKAGES = ("inside", "wire")

SHIM = '''"""The `crucible` that is installed for this Python, or else the calls that the agent brought."""

import importlib
import importlib.util
import os
import sys
from importlib.machinery import PathFinder

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _installed():
    others = [path for path in sys.path if os.path.abspath(path or os.getcwd()) != _HERE]
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find("crucible", others if finder is PathFinder else None) if find else None
        # Without a loader it is only some folder of that name.
        if spec is not None and spec.loader is not None and spec.origin not in (None, __file__):
            return spec
    return None


_spec = _installed()
if _spec is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["crucible"] = _module
    _spec.loader.exec_module(_module)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module("crucible.inside"), name)
'''


def write_shim(folder: Path) -> None:
    """Write a `crucible` package into `folder`, for use on PYTHONPATH."""
    top = folder / "crucible"
    top.mkdir(parents=True, exist_ok=True)
    (top / "__init__.py").write_text(SHIM, encoding="utf-8")
    for name, data in _sources().items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _sources() -> dict[str, bytes]:
    """Return the files of the packages by their names below `crucible/`, from the agent's archive or a folder."""
    package = Path(__file__).parents[1]
    archive = package.parent
    if archive.is_file():
        with zipfile.ZipFile(archive) as packed:
            wanted = [name for name in packed.namelist() if name.endswith(".py") and _is_wanted(name)]
            return {name.partition("/")[2]: packed.read(name) for name in wanted}
    files = [path for name in PACKAGES for path in sorted((package / name).rglob("*.py"))]
    return {path.relative_to(package).as_posix(): path.read_bytes() for path in files}


def _is_wanted(name: str) -> bool:
    return any(name.startswith(f"crucible/{package}/") for package in PACKAGES)
