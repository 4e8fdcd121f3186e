"""`crucible logs --grep`: lines that the server finds in a job's output, wherever that is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crucible.cli.output.screens import show_piece
from crucible.cli.output.split_lines import MARK, Piece
from crucible.cli.session import Session
from crucible.client.api import Api
from crucible.client.sdk.job_lookup import find_job
from crucible.core.views.search import HitView

PAGE = 1000


@dataclass(frozen=True)
class Search:
    text: str
    regex: bool = False
    ignore_case: bool = False
    context: int = 0
    attempt: int | None = None


def search(session: Session, job: str, wish: Search) -> int:
    found = False
    with session.api() as api:
        for hit in hits(api, find_job(api, job).id, wish):
            if found and wish.context and not session.out.as_json:
                session.out.data("--")
            _show(session, hit)
            found = True
    if not found:
        session.out.say("No line of its output matches.")
    return 0


def hits(api: Api, job: str, wish: Search) -> Iterator[HitView]:
    """All of them, page by page."""
    cursor: str | None = None
    while True:
        page = api.search_logs(
            job,
            wish.text,
            regex=wish.regex,
            case=not wish.ignore_case,
            attempt=wish.attempt,
            context=wish.context,
            limit=PAGE,
            cursor=cursor,
        )
        yield from page.items
        cursor = page.next
        if cursor is None:
            return


def _show(session: Session, hit: HitView) -> None:
    if session.out.as_json:
        session.out.json(hit.as_json())
        return
    for line in (*hit.before, hit.text, *hit.after):
        show_piece(session.out, Piece(f"{line}\n", line.startswith(MARK)))
