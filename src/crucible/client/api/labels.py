"""Names, tags and notes of jobs, and requests for many jobs at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from crucible.client.api import routes
from crucible.client.api.resource import Resource
from crucible.core.job.job_filter import JobFilter
from crucible.core.job.spec import JobSpec
from crucible.core.views.jobs import JobView, NoteView
from crucible.core.views.search import CancelledPage, SubmittedPage


class Labels(Resource):
    def rename(self, ref: str, name: str | None) -> JobView:
        return self._call(routes.RENAME, body={"name": name}, job=ref)

    def tags(self, ref: str) -> tuple[str, ...]:
        return self._call(routes.TAGS, job=ref).items

    def change_tags(self, ref: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
        """Remove tags, then add some; return the job's tags."""
        return self._call(routes.CHANGE_TAGS, body={"add": list(add), "remove": list(remove)}, job=ref).items

    def notes(self, ref: str) -> tuple[NoteView, ...]:
        return self._call(routes.NOTES, job=ref).items

    def add_note(self, ref: str, text: str) -> NoteView:
        """Add a note. Never retried: it could be added twice."""
        return self._call(routes.ADD_NOTE, body={"text": text}, job=ref)

    def delete_note(self, ref: str, note: str) -> NoteView:
        return self._call(routes.DELETE_NOTE, job=ref, note=note)


class BulkJobs(Resource):
    def submit(self, specs: Sequence[JobSpec], *, keys: Sequence[str] | None = None) -> SubmittedPage:
        """Submit up to 500 jobs, each with a key of its own; the response has the result of each."""
        keys = keys if keys is not None else [uuid.uuid4().hex for _ in specs]
        jobs = [{"spec": s.model_dump(mode="json"), "key": key} for s, key in zip(specs, keys, strict=True)]
        return self._call(routes.SUBMIT_MANY, body={"jobs": jobs})

    def cancel(
        self, filter: JobFilter | None = None, *, ids: Sequence[str] = (), dry_run: bool = False
    ) -> CancelledPage:
        """Cancel the jobs that match (up to 1,000, newest first), or those with these ids."""
        which: dict[str, object] = (
            {"ids": list(ids)} if filter is None else {"filter": filter.model_dump(mode="json", exclude_defaults=True)}
        )
        return self._call(routes.CANCEL_MANY, body={**which, "dry_run": dry_run})
