"""Labels of jobs: names, tags and notes. They change nothing of what a job does."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from crucible.core.job.spec import JobName
from crucible.core.job.tags import MAX_KEY, MAX_TAGS, MAX_VALUE
from crucible.core.views.jobs import JobView, NoteView
from crucible.core.views.search import NotePage, TagPage
from crucible.server.context import Control, JobRef, Who
from crucible.server.http.problems import problem_responses

MAX_NOTE = 2000

router = APIRouter(prefix="/api/v1/jobs", tags=["labels"])

TagTexts = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MAX_KEY + MAX_VALUE + 1)]], Field(max_length=MAX_TAGS)
]
NoteRef = Annotated[str, Path(min_length=1, max_length=100, description="id, short id or ending of a note")]


class _Wish(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Naming(_Wish):
    name: Annotated[JobName | None, Field(description="null takes the name away")]


class Tagging(_Wish):
    """`remove` comes first; a tag that is added takes the place of one with its key."""

    add: TagTexts = []
    remove: TagTexts = []

    @model_validator(mode="after")
    def _something(self) -> Tagging:
        if not self.add and not self.remove:
            raise ValueError("say what to add or what to remove")
        return self


class Writing(_Wish):
    text: Annotated[str, Field(min_length=1, max_length=MAX_NOTE)]

    @field_validator("text")
    @classmethod
    def _readable(cls, value: str) -> str:
        if "\x00" in value or not value.strip():
            raise ValueError("it has no words, or a NUL character among them")
        return value.strip()


@router.patch("/{id}", responses=problem_responses(404, 409, 413))
async def rename(id: JobRef, control: Control, who: Who, wish: Annotated[Naming, Body()]) -> JobView:
    """Give a job another name. What it runs and how far it is stays as it is."""
    return await control.labels.rename(who, id, wish.name)


@router.get("/{id}/tags", responses=problem_responses(404, 409))
async def list_tags(id: JobRef, control: Control, who: Who) -> TagPage:
    """The tags of a job, by key."""
    return await control.labels.tags(who, id)


@router.post("/{id}/tags", responses=problem_responses(404, 409, 413))
async def change_tags(id: JobRef, control: Control, who: Who, wish: Annotated[Tagging, Body()]) -> TagPage:
    """Add tags (`key` or `key=value`) and remove some (by `key`, or by `key=value` only where that is the value).

    Answers with all the job has then; a job has at most 50. Again is harmless.
    """
    return await control.labels.change_tags(who, id, add=wish.add, remove=wish.remove)


@router.get("/{id}/notes", responses=problem_responses(404, 409))
async def list_notes(id: JobRef, control: Control, who: Who) -> NotePage:
    """The notes on a job, oldest first, each with its author and time."""
    return await control.labels.notes(who, id)


@router.post("/{id}/notes", status_code=201, responses=problem_responses(404, 409, 413))
async def add_note(id: JobRef, control: Control, who: Who, wish: Annotated[Writing, Body()]) -> NoteView:
    """Leave a note on a job, of at most 2,000 characters. 409 where it has 100 already."""
    return await control.labels.add_note(who, id, text=wish.text)


@router.delete("/{id}/notes/{note}", responses=problem_responses(404, 409))
async def delete_note(id: JobRef, note: NoteRef, control: Control, who: Who) -> NoteView:
    """Delete a note; the answer is what it was."""
    return await control.labels.delete_note(who, id, note)
