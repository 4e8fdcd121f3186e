"""The rooms of the source tree: what import-linter cannot say about who imports what."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
PACKAGE = PROJECT / "src" / "crucible"
ELSEWHERE = ("wire", "inside", "agent")
"""Rooms whose code runs on other machines."""

PACKED = {"crucible", "crucible.__version__"}
"""What the agent's file has of the package itself; a job's `crucible` does not."""

ON_DEMAND = {"wire/documents/crypto.py": {"cryptography"}, "wire/machines/processes.py": {"psutil"}}
"""What such code imports beyond the standard library, within functions: either they say what to do where it is missing,
or they run only on macOS, in a server."""

OLDEST = (3, 9)
FILES_ELSEWHERE = sorted(path for room in ELSEWHERE for path in (PACKAGE / room).rglob("*.py"))


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Every module a file names in an import, at any depth, as an absolute name."""
    return frozenset(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _module(node, path)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _module(node: ast.ImportFrom, path: Path) -> str:
    """What it imports from, as an absolute name."""
    package = ["crucible", *path.relative_to(PACKAGE).parent.parts]
    base = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def top_of(name: str) -> str:
    """The package a module belongs to; for ours, the room."""
    return ".".join(name.split(".")[: 2 if name.startswith("crucible.") else 1])


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def importers_of(module: str) -> set[str]:
    return {
        room_of(path)
        for path in PACKAGE.rglob("*.py")
        if any(name == module or name.startswith(f"{module}.") for name in imports(path))
    }


@pytest.mark.parametrize("path", FILES_ELSEWHERE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_code_for_other_machines_is_python_39(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST)


@pytest.mark.parametrize("path", FILES_ELSEWHERE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_code_for_other_machines_needs_the_standard_library_alone(path: Path) -> None:
    allowed = {*sys.stdlib_module_names, "crucible.wire", f"crucible.{room_of(path)}"}
    allowed |= PACKED if room_of(path) == "agent" else set()
    on_demand = ON_DEMAND.get(str(path.relative_to(PACKAGE)), set())
    assert {top_of(name) for name in imports(path)} - allowed == on_demand
    first_run = _first_run(ast.parse(path.read_text(encoding="utf-8")).body)
    assert {top_of(name) for node in first_run for name in _named(node, path)} - allowed == set()


def test_code_for_other_machines_does_not_use_newer_modules() -> None:
    newer = {"tomllib", "annotationlib", "compression"}
    used = {name.partition(".")[0] for path in FILES_ELSEWHERE for name in imports(path)}
    assert used & newer == set()


def test_nobody_imports_the_composition_root() -> None:
    assert importers_of("crucible.app") <= {"app"}


def test_settings_are_read_by_app_cli_and_client_alone() -> None:
    assert importers_of("crucible.settings") <= {"app", "cli", "client", "settings"}


def test_every_room_has_a_contract() -> None:
    config = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    bound = {source for contract in contracts for source in contract["source_modules"]}
    rooms = {f"crucible.{init.parent.name}" for init in PACKAGE.glob("*/__init__.py")}
    assert rooms - {"crucible.app"} <= bound  # which may import everything


def test_importing_the_package_loads_none_of_its_rooms() -> None:
    code = "import crucible, sys; print([name for name in sys.modules if name.startswith('crucible.')])"
    output = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    assert output.strip() == "[]"


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    import crucible

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = crucible.nonsense


def loads(path: Path) -> set[str]:
    """The modules of ours that a file needs before it can be imported: not those of its functions, or for types."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {name for node in _first_run(tree.body) for name in _named(node, path)}
    return {name for name in found if _file_of(name) is not None}


def _first_run(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from _first_run(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _first_run([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)])
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def _named(node: ast.stmt, path: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = _module(node, path)
        named = [f"{module}.{alias.name}" for alias in node.names]
        submodules = [name for name in named if _file_of(name) is not None]
        yield from submodules if len(submodules) == len(named) else (module, *submodules)


def _file_of(name: str) -> Path | None:
    folder = PACKAGE.parent.joinpath(*name.split("."))
    return next((path for path in (folder.with_suffix(".py"), folder / "__init__.py") if path.exists()), None)


def module_of(path: Path) -> str:
    return ".".join(("crucible", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def test_modules_load_in_any_order() -> None:
    """Of two that need each other, the one that happens to come first finds the other half loaded."""
    left = {module_of(path): loads(path) for path in PACKAGE.rglob("*.py")}
    while ready := {name for name, needed in left.items() if not needed & left.keys() - {name}}:
        left = {name: needed for name, needed in left.items() if name not in ready}
    assert not left, f"they need each other: {sorted(left)}"
