"""A Python function, sent as source code, never as a pickle.

A function of a module is imported in the job as it was here, with the modules of its folder. A function of the running
script is extracted from it with the imports, functions, classes and assignments that it uses: the rest of the script,
which may be what submits the job, must not run again.
"""

from __future__ import annotations

import ast
import inspect
import json
import symtable
import sys
import sysconfig
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from crucible.client.payload.base import CodeSource, Payload, refuse_entry
from crucible.client.payload.files import expand_includes, gather, named_by, read_code, without_secrets
from crucible.client.payload.git_state import git_state, list_tracked
from crucible.client.payload.imports import local_imports
from crucible.client.request.declarations import Code
from crucible.client.request.pythons import choose_environment
from crucible.core.errors import BadInput
from crucible.core.job.spec import PYTHON, SourceKind
from crucible.wire.files.archive import Entry

NAME = "call_function.py"
RESULT = "function-result.json"
"""The artifact that holds what the function returned."""

_ADVICE = "Define it with `def` at the top of a .py file, or submit the file itself (path=...)."

_CALL = """
if __name__ == "__main__":
    import inspect as _inspect
    import json as _json
    import os as _os

    _arguments = _json.loads({arguments!r})
    _value = {name}(*_arguments["args"], **_arguments["kwargs"])
    if _inspect.iscoroutine(_value):
        import asyncio as _asyncio

        _value = _asyncio.run(_value)
    try:
        _text = _json.dumps(_value)
    except (TypeError, ValueError) as _error:
        raise SystemExit(
            f"{name} returned a value that is not JSON ({{_error}}). "
            "Return numbers, text, lists and dictionaries; write anything else to $CRUCIBLE_OUTPUT_DIR."
        ) from None
    with open(_os.path.join(_os.environ["CRUCIBLE_OUTPUT_DIR"], {result!r}), "w") as _file:
        _file.write(_text)
"""


def from_function(function: Callable[..., object], code_source: CodeSource) -> Payload:
    """Return a script that calls the function with the source's arguments and stores the result as JSON.

    Raises BadInput for functions without source of their own: lambdas, closures, methods, interactive definitions.
    """
    refuse_entry("A function", code_source)
    plain = _check_function(function)
    file = _file_of(plain)
    if code_source.in_place:
        raise BadInput(
            "A function cannot run in place.", why="A script is generated from it.", fix="Leave out in_place."
        )
    arguments = _arguments(plain, code_source.arguments, code_source.kwargs)
    module = plain.__module__
    root = file.parent if module == "__main__" else _root_of(file, module)
    head = _extract_function(plain, file) if module == "__main__" else _import_function(plain, root, file)
    script = head + _CALL.format(arguments=arguments, name=plain.__name__, result=RESULT)
    names = (*local_imports(root, head), *expand_includes(root, code_source.include))
    entries = [entry for entry in gather(root, names, code_source.limit) if entry.name != NAME] if names else []
    more = without_secrets(root, entries, list_tracked(root), named_by(root, code_source.include))
    entry = file.relative_to(root).as_posix()
    choice = choose_environment(code_source.python, Code(root, entry, read_code(file, str(file))), code_source.host)
    state = git_state(root, (entry, *names))
    return Payload(
        command=(PYTHON, NAME),
        environment=choice.environment,
        source=state.source(SourceKind.CODE, file),
        entries=(Entry.of_bytes(NAME, script.encode()), *more.entries),
        notes=choice.notes,
        left_out=more.left_out,
    )


def _check_function(function: object) -> types.FunctionType:
    """Return the function if its file and name identify it. Raises BadInput."""
    called = getattr(function, "__qualname__", None) or repr(function)
    if not isinstance(function, types.FunctionType):
        raise _refusal(called, "It is not a plain function but a class, a method, a partial or a built-in.")
    within = inspect.unwrap(function)
    if within.__name__ == "<lambda>":
        raise _refusal(called, "A lambda has no name to find it by.")
    if "<locals>" in called or within.__closure__:
        raise _refusal(called, "It is defined inside another function and may use its variables (a closure).")
    if "." in called:
        raise _refusal(called, "It belongs to a class.")
    if inspect.isgeneratorfunction(within) or inspect.isasyncgenfunction(within):
        raise _refusal(called, "It is a generator: nothing would consume its values.")
    return function


def _file_of(function: types.FunctionType) -> Path:
    source_file = inspect.getsourcefile(inspect.unwrap(function))
    file = Path(source_file).resolve() if source_file else None
    if file is None or not file.is_file():
        raise _refusal(
            function.__name__, "It was defined interactively or generated: no file has its source.", notebook=True
        )
    own = [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "purelib", "platlib")]
    if any(file.is_relative_to(folder) for folder in own):
        raise BadInput(
            f"{function.__module__}.{function.__name__} belongs to an installed package.",
            why=f"Its source is {file}.",
            fix=f"Submit code that imports it: code='from {function.__module__} import {function.__name__}; ...'.",
        )
    return file


def _refusal(name: str, why: str, *, notebook: bool = False) -> BadInput:
    fix = f"{_ADVICE} A notebook is submitted whole: path='study.ipynb'." if notebook else _ADVICE
    return BadInput(f"The function {name} cannot be submitted.", why=why, fix=fix)


def _arguments(function: types.FunctionType, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise BadInput(
            f"{function.__name__} cannot be called with these arguments.", why=f"{error}.", fix="Check args and kwargs."
        ) from error
    try:
        return json.dumps({"args": list(args), "kwargs": dict(kwargs)}, allow_nan=True)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"An argument of {function.__name__} cannot be sent.",
            why=f"{error}. Arguments are sent as JSON, never as pickles.",
            fix="Pass numbers, text, lists and dictionaries; pass files by path, or with data=.",
        ) from error


# A function of a module


def _root_of(file: Path, module: str) -> Path:
    """Return the folder that `module` is imported from."""
    depth = len(module.split("."))
    return file.parents[depth if file.stem == "__init__" else depth - 1]


def _import_function(function: types.FunctionType, root: Path, file: Path) -> str:
    module = function.__module__
    here = sys.modules.get(module)
    if getattr(here, function.__name__, None) is not function:
        raise _refusal(function.__name__, f"It is not the current {module}.{function.__name__}.")
    name = function.__name__
    return f"# Generated to call {name} of {file.relative_to(root)}\nfrom {module} import {name}\n"


# A function of the running script


def _extract_function(function: types.FunctionType, file: Path) -> str:
    """Return the statements of the script that the function needs, in order."""
    text = read_code(file, str(file))
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise _refusal(function.__name__, f"{file} has changed and is no longer valid Python: {error.msg}.") from error
    binding = {index: _binds(statement) for index, statement in enumerate(body)}
    if not any(function.__name__ in names for names in binding.values()):
        raise _refusal(function.__name__, f"{file} no longer defines it.")
    needed, pending = set[int](), [function.__name__]
    while pending:
        name = pending.pop()
        for index in (index for index, names in binding.items() if name in names and index not in needed):
            needed.add(index)
            pending.extend(_needs(_source(text, body[index])))
    futures = [index for index, statement in enumerate(body) if _is_future(statement)]
    kept = [_source(text, body[index]) for index in sorted({*needed, *futures})]
    return f"# Generated from {file.name} to call {function.__name__}\n" + "\n\n".join(kept) + "\n"


def _source(text: str, statement: ast.stmt) -> str:
    """Return the source of a statement, with its decorators."""
    above = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in above)])
    return "\n".join(text.splitlines()[first - 1 : statement.end_lineno])


def _binds(statement: ast.stmt) -> frozenset[str]:
    """Return the names that a top-level statement defines; those under `if __name__ == ...` do not count."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return frozenset({statement.name})
    if isinstance(statement, ast.If) and "__name__" in _names_in(statement.test):
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
    return frozenset(names)


def _names_in(node: ast.AST) -> frozenset[str]:
    return frozenset(name.id for name in ast.walk(node) if isinstance(name, ast.Name))


def _needs(source: str) -> set[str]:
    """Return the names that a statement uses from its module, without its own parameters and variables."""
    top = symtable.symtable(source, "statement", "exec")
    needed = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    inner = list(top.get_children())
    while inner:
        table = inner.pop()
        needed |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
        inner.extend(table.get_children())
    return needed


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
