"""Labels of jobs: names, tags and notes. They do not affect how a job runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path

from crucible.core.requests import JobRename, NewNote, TagChange
from crucible.core.views.jobs import JobView, NoteView
from crucible.core.views.search import NotePage, TagPage
from crucible.server.context import Control, JobRef, Who
from crucible.server.http.problems import problem_responses

router = APIRouter(prefix="/api/v1/jobs", tags=["labels"])

NoteRef = Annotated[str, Path(min_length=1, max_length=100, description="id, short id or ending of a note")]


@router.patch("/{id}", responses=problem_responses(404, 409, 413))
async def rename(id: JobRef, control: Control, who: Who, body: Annotated[JobRename, Body()]) -> JobView:
    """Rename a job. Nothing else about it changes."""
    return await control.labels.rename(who, id, body.name)


@router.get("/{id}/tags", responses=problem_responses(404, 409))
async def list_tags(id: JobRef, control: Control, who: Who) -> TagPage:
    """List a job's tags, sorted by key."""
    return await control.labels.tags(who, id)


@router.post("/{id}/tags", responses=problem_responses(404, 409, 413))
async def change_tags(id: JobRef, control: Control, who: Who, body: Annotated[TagChange, Body()]) -> TagPage:
    """Add tags (`key` or `key=value`), and remove tags (by `key`, or by `key=value` only if the value matches).

    Returns all tags of the job; a job has at most 50. Idempotent.
    """
    return await control.labels.change_tags(who, id, add=body.add, remove=body.remove)


@router.get("/{id}/notes", responses=problem_responses(404, 409))
async def list_notes(id: JobRef, control: Control, who: Who) -> NotePage:
    """List the notes on a job, oldest first, each with its author and time."""
    return await control.labels.notes(who, id)


@router.post("/{id}/notes", status_code=201, responses=problem_responses(404, 409, 413))
async def add_note(id: JobRef, control: Control, who: Who, body: Annotated[NewNote, Body()]) -> NoteView:
    """Add a note of at most 2,000 characters to a job. 409 if the job has 100 notes."""
    return await control.labels.add_note(who, id, text=body.text)


@router.delete("/{id}/notes/{note}", responses=problem_responses(404, 409))
async def delete_note(id: JobRef, note: NoteRef, control: Control, who: Who) -> NoteView:
    """Delete a note and return it."""
    return await control.labels.delete_note(who, id, note)
