"""Loading modules from bytecode that came as one piece, as in an agent's file.

Python's own import from an archive tries several names for each module, unpacks each by itself and reads each twice.
The piece is a module of the archive that holds the code of others; Python reads it as it reads any, so it is empty
where it was made by another Python. What it does not hold comes from its source.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, Optional
from zipimport import zipimporter

PIECE = "compiled"
"""The module's name in the archive."""
CODES = "CODES"
"""What it holds: pairs of a file's name in the archive and its code."""


def load_from(archive: object) -> None:
    """Let every later import find what the archive's piece holds. Does nothing where it was unpacked."""
    if not isinstance(archive, zipimporter):
        return
    held: dict[str, Any] = {}
    exec(archive.get_code(PIECE), held)  # noqa: S102  an import would read it twice
    sys.meta_path.insert(0, Bytecode(dict(held[CODES]), archive))


class Bytecode:
    """A finder and loader, of modules alone: it tells of no other files, which are the archive's to give.

    It forgets what it has loaded; should that be loaded once more, then from its source.
    """

    def __init__(self, codes: dict[str, CodeType], archive: zipimporter) -> None:
        self._codes = codes
        self._archive = archive
        self._files: dict[str, str] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> Optional[ModuleSpec]:
        base = name.replace(".", "/")
        for file, is_package in ((f"{base}.py", False), (f"{base}/__init__.py", True)):
            if file in self._codes:
                self._files[name] = file
                return self._spec(name, file, f"{self._archive.archive}/{base}" if is_package else None)
        return None

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._codes.pop(self._files[module.__name__]), module.__dict__)  # noqa: S102  what an import is

    def get_code(self, name: str) -> Optional[CodeType]:
        """For `python -m`. Raises ImportError."""
        return self._codes.get(self._files.get(name, "")) or self._archive.get_code(name.replace(".", "/"))

    def get_source(self, name: str) -> str:
        """For the lines that a traceback shows. Raises ImportError."""
        if name not in self._files:
            raise ImportError(f"{name} was not loaded here", name=name)
        return self._archive.get_data(self._files[name]).decode()

    def _spec(self, name: str, file: str, folder: Optional[str]) -> ModuleSpec:
        spec = ModuleSpec(name, self, origin=f"{self._archive.archive}/{file}")  # type: ignore[arg-type]
        spec.has_location = True
        spec.submodule_search_locations = None if folder is None else [folder]
        return spec
