"""Notes: short texts that users add to a job, with author and time. They can be deleted, but not changed."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, func, select

from crucible.control.db import schema as t
from crucible.control.db.statement import Row, Statement, insert_row
from crucible.control.jobs.views import iso
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.runtime.ports import Ids
from crucible.core.errors import Conflict, NotFound
from crucible.core.ids import Prefix, short
from crucible.core.views.jobs import NoteView

MAX_NOTES = 100

_n = t.job_notes.c
_OF_JOB = Statement(select(t.job_notes).where(_n.job == bindparam("job")).order_by(_n.id))
_COUNT = Statement(select(func.count()).select_from(t.job_notes).where(_n.job == bindparam("job")))
_ADD = Statement(insert_row(t.job_notes, ["id", "job", "author", "text", "at"]))
_REMOVE = Statement(delete(t.job_notes).where(_n.id == bindparam("note")))


def list_notes(conn: Connection, job: str) -> list[NoteView]:
    """Return the notes of a job, oldest first."""
    return [_view(row) for row in _OF_JOB.all(conn, job=job)]


def add(unit: UnitOfWork, ids: Ids, job: str, author: str, text: str) -> NoteView:
    """Append a note. Raises Conflict if the job has MAX_NOTES."""
    if _COUNT.value(unit.conn, job=job) >= MAX_NOTES:
        raise Conflict(
            f"Job {short(job)} has {MAX_NOTES} notes already.",
            fix=f"Delete one first: crucible note {short(job)} --delete NOTE",
        )
    row = {"id": ids.new(Prefix.NOTE), "job": job, "author": author, "text": text, "at": unit.now}
    _ADD.run(unit.conn, **row)
    return _view(row)


def remove(unit: UnitOfWork, job: str, ref: str) -> NoteView:
    """Delete and return the note of this id, short id or ending. Raises NotFound, Conflict."""
    known = list_notes(unit.conn, job)
    ending = ref.lower().removeprefix(f"{Prefix.NOTE.value}-")
    matches = [note for note in known if len(ending) >= 3 and note.id.endswith(ending)]
    if not matches:
        raise NotFound(f"Job {short(job)} has no note {ref!r}.", fix=f"crucible note {short(job)} lists them.")
    if len(matches) > 1:
        raise Conflict(f"{ref!r} matches several notes.", fix="Type more of the id.")
    _REMOVE.run(unit.conn, note=matches[0].id)
    return matches[0]


def _view(row: Row) -> NoteView:
    return NoteView(id=row["id"], short=short(row["id"]), author=row["author"], text=row["text"], at=iso(row["at"]))
