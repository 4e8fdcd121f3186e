"""Code given on the command line or on standard input."""

from __future__ import annotations

from crucible.client.payload.base import CodeSource, Payload, refuse_entry
from crucible.client.payload.files import decode_code, expand_includes, gather, syntax_note
from crucible.client.request.declarations import Code
from crucible.client.request.pythons import choose_environment
from crucible.core.errors import BadInput
from crucible.core.job.spec import PYTHON, Source, SourceKind
from crucible.wire.files.archive import Entry

NAME = "main.py"


def from_code(code: str, code_source: CodeSource, *, shown: str = "The code") -> Payload:
    """Sent as `main.py`, so that a traceback shows its lines; --include is relative to the current folder."""
    refuse_entry(shown, code_source)
    text = decode_code(code.encode("utf-8", errors="surrogateescape"), shown)
    choice = choose_environment(code_source.python, Code(text=text), code_source.host)
    names = expand_includes(code_source.folder, code_source.include)
    if NAME in names:
        raise BadInput(f"--include brings a {NAME}, and the code is sent under that name.", fix="Rename it.")
    entries = None
    if not code_source.in_place:
        more = gather(code_source.folder, names, code_source.limit) if names else ()
        entries = (Entry.of_bytes(NAME, text.encode()), *more)
    start = (PYTHON, "-c", text) if code_source.in_place else (PYTHON, NAME)
    return Payload(
        command=(*start, *code_source.command_arguments),
        environment=choice.environment,
        source=Source(kind=SourceKind.CODE),
        entries=entries,
        in_place=str(code_source.folder) if code_source.in_place else None,
        notes=(*choice.notes, *syntax_note(text, shown)),
    )
