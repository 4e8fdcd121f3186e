"""Code given on the command line or on standard input."""

from __future__ import annotations

from crucible.client.payload.base import Payload, Request, refuse_entry
from crucible.client.payload.files import decode_code, gather, included, syntax_note
from crucible.client.pythons import Code, choose_python
from crucible.core.errors import BadInput
from crucible.core.spec import PYTHON, Source, SourceKind
from crucible.wire.archive import Entry

NAME = "main.py"


def from_code(code: str, request: Request, *, shown: str = "The code") -> Payload:
    """Sent as `main.py`, so that a traceback shows its lines; --include is relative to the current folder."""
    refuse_entry(shown, request)
    text = decode_code(code.encode("utf-8", errors="surrogateescape"), shown)
    choice = choose_python(request.python, Code(text=text), request.around)
    names = included(request.folder, request.include)
    if NAME in names:
        raise BadInput(f"--include brings a {NAME}, and the code is sent under that name.", fix="Rename it.")
    entries = None
    if not request.in_place:
        more = gather(request.folder, names, request.limit) if names else ()
        entries = (Entry.of_bytes(NAME, text.encode()), *more)
    start = (PYTHON, "-c", text) if request.in_place else (PYTHON, NAME)
    return Payload(
        command=(*start, *request.arguments),
        environment=choice.environment,
        source=Source(kind=SourceKind.CODE),
        entries=entries,
        in_place=str(request.folder) if request.in_place else None,
        notes=(*choice.notes, *syntax_note(text, shown)),
    )
