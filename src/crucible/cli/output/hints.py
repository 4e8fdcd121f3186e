"""Hints for a failed job, from the last lines of its output."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from crucible.client.payload import Payload
from crucible.client.payload.secret_files import is_secret_name
from crucible.core.job.spec import SourceKind

_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_FILE = re.compile(r"^(?:\w+\.)*FileNotFoundError: (.+)", re.MULTILINE)
_QUOTED = re.compile(r"['\"]([^'\"]+)['\"]")
_IN_JOB = re.compile(r"^/.*/attempts/[^/]+/work/")
_INPUT = re.compile(r"^EOFError: EOF when reading a line", re.MULTILINE)
_DEEPEST = 8


def find_hints(tail: Iterable[str], payload: Payload | None = None, folder: Path | None = None) -> tuple[str, ...]:
    """Return hints if the output shows a known problem. `payload` was submitted from `folder`."""
    text = "\n".join(tail)
    return (*_module_hint(text, payload, folder), *_file_hint(text, payload, folder), *_input_hint(text))


def _module_hint(text: str, payload: Payload | None, folder: Path | None) -> Iterator[str]:
    modules = _MODULE.findall(text)
    if not modules:
        return
    name = modules[-1].partition(".")[0]
    root = _root_with(name, payload)
    if root is not None and payload is not None and payload.source.path:
        entry = Path(payload.source.path).relative_to(root).as_posix()
        yield (
            f"{name} is in {root}, which was not sent. Send it and add it to the Python path: "
            f"crucible run {_display_path(root, folder)} --entry {entry} --env PYTHONPATH=."
        )
    else:
        yield (
            f"The job's Python has no module {name}. Add its package to a `# /// script` block in the script or to"
            " requirements.txt next to it, or choose a Python that has it with --python."
        )


def _file_hint(text: str, payload: Payload | None, folder: Path | None) -> Iterator[str]:
    """Yield the command that sends a file that the job did not find although it is here."""
    missing = _FILE.findall(text)
    if not missing or payload is None or folder is None or payload.in_place is not None:
        return
    roots = _local_folders(payload, folder)
    names = _QUOTED.findall(missing[-1]) or missing[-1].rstrip(".").split()
    for name in names:
        inside = _IN_JOB.sub("", name)
        tops = roots[:1] if inside != name else roots[1:]
        path = next((top / inside for top in tops if os.path.lexists(top / inside)), None)
        if path is None or len(inside) < 2 or (is_secret_name(inside) and not path.is_relative_to(roots[0])):
            continue
        yield _how_to_send(Path(os.path.normpath(path)), roots, payload, folder)
        return


def _local_folders(payload: Payload, folder: Path) -> list[Path]:
    """Return the folder whose files were sent, the one in it where the job started, then where the user stands."""
    source, here = payload.source, folder.resolve()
    if source.path is None or source.kind not in (SourceKind.SCRIPT, SourceKind.NOTEBOOK, SourceKind.DIRECTORY):
        return [here, here]
    path = Path(source.path)
    if source.kind is SourceKind.DIRECTORY:
        return [path, path, here]
    if source.kind is SourceKind.NOTEBOOK or len(payload.command) < 2:
        return [path.parent, path.parent, here]
    name = os.path.normpath(os.path.join(payload.workdir or "", payload.command[1]))
    root = path.parents[len(Path(name).parts) - 1]
    return [root, root / (payload.workdir or ""), here]


def _how_to_send(path: Path, roots: list[Path], payload: Payload, folder: Path) -> str:
    if not path.is_relative_to(roots[0]):
        return (
            f"{path} is on this computer, but was not sent. Send it with --data {shlex.quote(str(path))}, and read"
            f" $CRUCIBLE_DATA_DIR/{path.name}."
        )
    pattern = os.path.relpath(path, roots[1])
    command = ["crucible", "run", *_target(payload, folder), "--include", glob.escape(pattern)]
    arguments = payload.command[3 if payload.source.kind is SourceKind.SHELL else 2 :]
    words = shlex.join([*command, *(("--", *arguments) if arguments else ())])
    return f"{pattern} exists here, but was not sent. Send it: {words}"


def _target(payload: Payload, folder: Path) -> tuple[str, ...]:
    kind, path = payload.source.kind, payload.source.path
    if kind is SourceKind.SHELL:
        return "--shell", payload.command[2]
    if path is None or kind not in (SourceKind.SCRIPT, SourceKind.NOTEBOOK, SourceKind.DIRECTORY):
        return ("...",)
    return (os.path.relpath(path, folder.resolve()),)


def _root_with(name: str, payload: Payload | None) -> Path | None:
    """Return the nearest folder above the submitted script that contains the module, or None."""
    if payload is None or not payload.source.path or not payload.source.path.endswith(".py"):
        return None
    script = Path(payload.source.path)
    for folder in script.parents[1:_DEEPEST]:
        if (folder / f"{name}.py").is_file() or (folder / name).is_dir():
            return folder
        if (folder / ".git").exists() or folder == Path.home():
            return None
    return None


def _display_path(root: Path, folder: Path | None) -> str:
    return str(root) if folder is None else os.path.relpath(root, folder)


def _input_hint(text: str) -> Iterator[str]:
    if _INPUT.search(text):
        yield "A job has no standard input. Pass the input as an argument (after --), a variable or a file."
