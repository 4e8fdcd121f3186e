"""A notebook: its code cells, in order, as one script.

Line magics are dropped with a comment, `!command` and `%%bash` cells become subprocess calls. Nothing is
executed here.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from crucible.client.payload.base import CodeSource, Payload, refuse_entry
from crucible.client.payload.files import expand_includes, gather, named_by, read_bytes, syntax_note, without_secrets
from crucible.client.payload.git_state import git_state, list_tracked
from crucible.client.payload.imports import local_imports
from crucible.client.request.declarations import Code
from crucible.client.request.pythons import choose_environment
from crucible.core.errors import BadInput
from crucible.core.job.spec import PYTHON, SourceKind
from crucible.wire.files.archive import Entry

_SHELLS = frozenset({"bash", "sh", "system", "sx", "!"})
_TRANSPARENT = frozenset({"time", "timeit", "capture", "prun"})
_LINE = re.compile(r"^(?P<indent>\s*)(?P<mark>%|!|\?)(?P<rest>.*)$")
_CAPTURE = re.compile(r"^(?P<indent>\s*)(?P<name>[A-Za-z_][\w.]*)\s*=\s*(?P<mark>[!%])(?P<rest>.+)$")
_HELP = re.compile(r"^\s*[\w.]+\?{1,2}\s*$")
_INSTALL = re.compile(r"^\s*(?:[%!]\s*)(?:pip3?|conda|uv|mamba)\b.*\binstall\b", re.MULTILINE)

_DISPLAY = """\
try:
    from IPython.display import display
except ImportError:
    display = print
"""


def from_notebook(label: str, code_source: CodeSource) -> Payload:
    refuse_entry("A notebook", code_source)
    path = (code_source.folder / Path(label).expanduser()).resolve()
    root, name = path.parent, f"{path.stem}.py"
    cells = read_cells(read_bytes(path, label), label)
    code = to_script(cells, path.name)
    choice = choose_environment(code_source.python, Code(root, path.name, code), code_source.host)
    if code_source.in_place:
        raise BadInput(
            "A notebook cannot run in place, because the script generated from it would be written there.",
            fix="Leave out --in-place; add the files it needs with --include.",
        )
    names = (*local_imports(root, code), *expand_includes(root, code_source.include))
    entries = [entry for entry in gather(root, names, code_source.limit) if entry.name != name] if names else []
    more = without_secrets(root, entries, list_tracked(root), named_by(root, code_source.include))
    state = git_state(root, (path.name, *names))
    return Payload(
        command=(PYTHON, name, *code_source.command_arguments),
        environment=choice.environment,
        source=state.source(SourceKind.NOTEBOOK, path),
        entries=(Entry.of_bytes(name, code.encode()), *more.entries),
        notes=(*choice.notes, *_install_note(cells), *syntax_note(code, label)),
        left_out=more.left_out,
    )


def read_cells(data: bytes, label: str) -> tuple[str, ...]:
    """Return the sources of the code cells, for any notebook version. Raises BadInput."""
    import nbformat

    if not data.strip():
        raise BadInput(f"{label} is empty.", fix="Check that it was saved.")
    try:
        with warnings.catch_warnings():
            # nbformat warns that cells of older notebooks have no ids, which does not matter here.
            warnings.simplefilter("ignore")
            notebook = nbformat.reads(data.decode("utf-8"), as_version=4)  # type: ignore[no-untyped-call]
        cells = tuple(str(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{label} is not UTF-8 text.",
            why=f"The byte at offset {error.start} is not valid there.",
            fix="Save it again in Jupyter.",
            offset=error.start,
        ) from error
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, json.JSONDecodeError) as error:
        raise _no_notebook(label, str(error)) from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _no_notebook(label, f"Its structure is invalid ({error}).") from error
    if not any(cell.strip() for cell in cells):
        raise BadInput(f"{label} has no code in it.", fix="Add a code cell, and save the notebook.")
    return cells


def to_script(cells: tuple[str, ...], name: str) -> str:
    """Return a Python script that does what running the cells in order does."""
    parts = [_cell(cell) for cell in cells]
    head = [f"# Generated from {name}"]
    if any("subprocess." in part for part in parts):
        head.append("import subprocess")
    if any(re.search(r"\bdisplay\(", part) for part in parts):
        head.append(_DISPLAY)
    numbered = [f"# Cell {number}\n{part}" for number, part in enumerate(parts, 1) if part.strip()]
    return "\n\n".join(["\n".join(head), *numbered]) + "\n"


def _cell(source: str) -> str:
    if source.lstrip().startswith("%%"):
        return _magic_cell(source.lstrip())
    if _is_python(source):
        return source.strip("\n")
    return "\n".join(_line(line) for line in source.strip("\n").split("\n"))


def _magic_cell(source: str) -> str:
    first, _, body = source.partition("\n")
    magic, _, rest = first[2:].strip().partition(" ")
    if magic in _SHELLS:
        shell = "sh" if magic == "sh" else "bash"
        return f"subprocess.run({[shell, '-c', body]!r}, check=True)"
    if magic == "writefile":
        return f"with open({rest.strip()!r}, 'w') as _file:\n    _file.write({body!r})"
    if magic in _TRANSPARENT:
        return f"# left out: {first}\n{_cell(body)}"
    return "\n".join(f"# left out: {line}" for line in source.splitlines())


def _line(line: str) -> str:
    captured = _CAPTURE.match(line)
    if captured and captured["mark"] == "!":
        call = f"subprocess.run({captured['rest'].strip()!r}, shell=True, capture_output=True, text=True)"
        return f"{captured['indent']}{captured['name']} = {call}.stdout.splitlines()"
    match = _LINE.match(line)
    if match and match["mark"] == "!":
        return f"{match['indent']}subprocess.run({match['rest'].lstrip('!').strip()!r}, shell=True)"
    if match or _HELP.match(line) or captured:
        indent = line[: len(line) - len(line.lstrip())]
        return f"{indent}pass  # left out: {line.strip()}"
    return line


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def _install_note(cells: tuple[str, ...]) -> Iterator[str]:
    if any(_INSTALL.search(cell) for cell in cells):
        yield (
            "The notebook installs packages itself. Better list them in a `# /// script` block"
            " or in requirements.txt: they are then installed once and kept."
        )


def _no_notebook(label: str, why: str) -> BadInput:
    return BadInput(f"{label} is not a notebook.", why=why[:500], fix="Save it in Jupyter as .ipynb.")
