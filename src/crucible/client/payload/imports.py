"""Finds the files of its own folder that a script imports, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_BY_NAME = frozenset({"import_module", "__import__"})


def local_imports(root: Path, code: str) -> tuple[str, ...]:
    """Return the names below `root` of the modules and packages that `code` imports, directly or indirectly.

    A regular package is returned as a whole folder, because it may read files of its own; of a folder without
    `__init__.py` only the modules are.
    """
    names: dict[str, None] = {}
    pending = list(_imported(code))
    seen: set[str] = set()
    while pending:
        top = pending.pop()
        if top in seen:
            continue
        seen.add(top)
        for name, files in _find_module(root, top):
            names[name] = None
            for file in files:
                pending.extend(_imported(_text(file)))
    return tuple(sorted(names))


def _find_module(root: Path, top: str) -> Iterator[tuple[str, list[Path]]]:
    """Yield each name to send of a top-level module, with the source files in it."""
    package, module = root / top, root / f"{top}.py"
    if (package / "__init__.py").is_file():
        yield from _with_target(root, package, sorted(package.rglob("*.py")))
    elif module.is_file():
        yield from _with_target(root, module, [module])
    elif package.is_dir():
        for file in sorted(package.rglob("*.py")):
            yield file.relative_to(root).as_posix(), [file]


def _with_target(root: Path, path: Path, files: list[Path]) -> Iterator[tuple[str, list[Path]]]:
    """Yield a path and, as links are sent as links, the target that a link points to."""
    yield path.relative_to(root).as_posix(), files
    target = path.resolve()
    if path.is_symlink() and target.is_relative_to(root):
        yield target.relative_to(root).as_posix(), []


def _imported(code: str) -> Iterator[str]:
    """Yield the top-level names that code imports; none for invalid Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Call):
            yield from _by_name(node)


def _by_name(call: ast.Call) -> Iterator[str]:
    """Yield the name of a call such as `importlib.import_module("name")` with a literal name."""
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", None)
    if name in _BY_NAME and call.args and isinstance(call.args[0], ast.Constant):
        value = call.args[0].value
        if isinstance(value, str) and not value.startswith("."):
            yield value.partition(".")[0]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
