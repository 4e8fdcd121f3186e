"""Labels: a job's name, tags and notes, which may change in any state of the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from crucible.control.jobs import labels, notes, queries
from crucible.control.reconcile.unit_of_work import UnitOfWork
from crucible.control.runtime.services import Services
from crucible.control.telemetry.feed import Hint
from crucible.core.job.tags import Tag, parse_tag, parse_tags
from crucible.core.people.identity import Identity
from crucible.core.views.jobs import JobView, NoteView
from crucible.core.views.search import NotePage, TagPage

T = TypeVar("T")


class Labels:
    def __init__(self, services: Services) -> None:
        self._ports = services.ports
        self._writer = services.writer
        self._access = services.access

    async def rename(self, who: Identity, ref: str, name: str | None) -> JobView:
        """Change the job's name; None removes it."""
        job = await self._access.writable_job(who, ref)

        def rename(unit: UnitOfWork) -> JobView:
            labels.rename(unit.conn, job, name)
            return queries.read_job(unit.conn, job, unit.now)

        return await self._write(job, rename)

    async def tags(self, who: Identity, ref: str) -> TagPage:
        job = await self._access.readable_job(who, ref)
        return _page(await self._ports.db.read(lambda conn: labels.tags_of(conn, job)))

    async def change_tags(self, who: Identity, ref: str, *, add: Sequence[str], remove: Sequence[str]) -> TagPage:
        """Remove tags, then add tags; return all tags of the job. Raises BadInput for a malformed tag."""
        job, new, old = await self._access.writable_job(who, ref), parse_tags(add), [parse_tag(text) for text in remove]
        return _page(await self._write(job, lambda unit: labels.change_tags(unit.conn, job, new, old)))

    async def notes(self, who: Identity, ref: str) -> NotePage:
        job = await self._access.readable_job(who, ref)
        return NotePage(items=tuple(await self._ports.db.read(lambda conn: notes.list_notes(conn, job))))

    async def add_note(self, who: Identity, ref: str, *, text: str) -> NoteView:
        """Add a note. Raises Conflict if the job has the maximum number of notes."""
        job, ids = await self._access.writable_job(who, ref), self._ports.ids
        return await self._write(job, lambda unit: notes.add(unit, ids, job, who.name, text))

    async def delete_note(self, who: Identity, ref: str, note: str) -> NoteView:
        job = await self._access.writable_job(who, ref)
        return await self._write(job, lambda unit: notes.remove(unit, job, note))

    async def _write(self, job: str, change: Callable[[UnitOfWork], T]) -> T:
        """Apply the change and notify the watchers of the job."""

        def apply(unit: UnitOfWork) -> T:
            unit.changes.hint(job, Hint.EVENT)
            return change(unit)

        return await self._writer.write(apply)


def _page(tags: Sequence[Tag]) -> TagPage:
    return TagPage(items=tuple(map(str, tags)))
