"""Labels of jobs: names, tags and notes. They change nothing of what a job does."""

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
async def rename(id: JobRef, control: Control, who: Who, wish: Annotated[JobRename, Body()]) -> JobView:
    """Give a job another name. What it runs and how far it is stays as it is."""
    return await control.labels.rename(who, id, wish.name)


@router.get("/{id}/tags", responses=problem_responses(404, 409))
async def list_tags(id: JobRef, control: Control, who: Who) -> TagPage:
    """The tags of a job, by key."""
    return await control.labels.tags(who, id)


@router.post("/{id}/tags", responses=problem_responses(404, 409, 413))
async def change_tags(id: JobRef, control: Control, who: Who, wish: Annotated[TagChange, Body()]) -> TagPage:
    """Add tags (`key` or `key=value`) and remove some (by `key`, or by `key=value` only where that is the value).

    Answers with all the job has then; a job has at most 50. Again is harmless.
    """
    return await control.labels.change_tags(who, id, add=wish.add, remove=wish.remove)


@router.get("/{id}/notes", responses=problem_responses(404, 409))
async def list_notes(id: JobRef, control: Control, who: Who) -> NotePage:
    """The notes on a job, oldest first, each with its author and time."""
    return await control.labels.notes(who, id)


@router.post("/{id}/notes", status_code=201, responses=problem_responses(404, 409, 413))
async def add_note(id: JobRef, control: Control, who: Who, wish: Annotated[NewNote, Body()]) -> NoteView:
    """Leave a note on a job, of at most 2,000 characters. 409 where it has 100 already."""
    return await control.labels.add_note(who, id, text=wish.text)


@router.delete("/{id}/notes/{note}", responses=problem_responses(404, 409))
async def delete_note(id: JobRef, note: NoteRef, control: Control, who: Who) -> NoteView:
    """Delete a note; the answer is what it was."""
    return await control.labels.delete_note(who, id, note)
