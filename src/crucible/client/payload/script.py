"""A Python script: the file, the modules of its own folder that it imports, and what --include adds."""

from __future__ import annotations

from pathlib import Path

from crucible.client.payload.base import CodeSource, Payload, refuse_entry
from crucible.client.payload.files import expand_includes, gather, read_code, syntax_note
from crucible.client.payload.git_state import git_state
from crucible.client.payload.imports import local_imports
from crucible.client.request.declarations import Code
from crucible.client.request.pythons import choose_environment
from crucible.core.errors import BadInput
from crucible.core.job.spec import PYTHON, SourceKind


def from_script(shown: str, code_source: CodeSource) -> Payload:
    refuse_entry("A script", code_source)
    path = (code_source.folder / Path(shown).expanduser()).resolve()
    text = read_code(path, shown)
    root, name = path.parent, path.name
    choice = choose_environment(code_source.python, Code(root, name, text), code_source.host)
    names = tuple(dict.fromkeys((name, *local_imports(root, text), *expand_includes(root, code_source.include))))
    state = git_state(root, names)
    entries = None if code_source.in_place else gather(root, names, code_source.limit)
    if entries is not None and all(entry.name != name for entry in entries):
        raise BadInput(f"{shown} is named in .crucibleignore.", fix="Take it out of there.")
    return Payload(
        command=(PYTHON, name, *code_source.command_arguments),
        environment=choice.environment,
        source=state.source(SourceKind.SCRIPT, path),
        entries=entries,
        in_place=str(root) if code_source.in_place else None,
        notes=(*choice.notes, *syntax_note(text, shown)),
    )
