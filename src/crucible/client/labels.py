"""What people write on jobs, over the API: names, tags, notes."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from crucible.client.answers import read
from crucible.client.found import NotePage, NoteView, TagPage
from crucible.client.routes import job_path
from crucible.client.transport import Transport
from crucible.client.views import JobView


class Labels:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def rename(self, ref: str, name: str | None) -> JobView:
        return read(JobView, self._transport.request("PATCH", job_path(ref), body={"name": name}, repeat=True))

    def tags(self, ref: str) -> tuple[str, ...]:
        return read(TagPage, self._transport.request("GET", job_path(ref, "tags"))).items

    def tag(self, ref: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
        """Remove tags, then add some; the tags of the job after that."""
        body = {"add": list(add), "remove": list(remove)}
        return read(TagPage, self._transport.request("POST", job_path(ref, "tags"), body=body, repeat=True)).items

    def notes(self, ref: str) -> tuple[NoteView, ...]:
        return read(NotePage, self._transport.request("GET", job_path(ref, "notes"))).items

    def add_note(self, ref: str, text: str) -> NoteView:
        """Leave a note. Not repeated: it would be there twice."""
        return read(
            NoteView, self._transport.request("POST", job_path(ref, "notes"), body={"text": text}, repeat=False)
        )

    def delete_note(self, ref: str, note: str) -> NoteView:
        path = job_path(ref, f"notes/{quote(note, safe='')}")
        return read(NoteView, self._transport.request("DELETE", path, repeat=False))
