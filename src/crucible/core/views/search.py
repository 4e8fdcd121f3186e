"""Tags, notes, searches and bulk operations."""

from pydantic import Field

from crucible.core.views.base import PartialView, View, sometimes
from crucible.core.views.jobs import JobView, NoteView
from crucible.core.views.problems import Problem


class TagPage(View):
    items: tuple[str, ...] = ()


class NotePage(View):
    items: tuple[NoteView, ...] = ()


class HitView(View):
    """A matching line of output: `line` is its number, `offset` the byte where it starts."""

    attempt: int
    line: int
    offset: int
    column: int = 0
    text: str = ""
    cut: bool = False
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class SearchedView(View):
    lines: int = 0
    bytes: int = 0


class HitPage(View):
    """`next` is the cursor to continue from; `complete`: nothing will follow."""

    items: tuple[HitView, ...] = ()
    next: str | None = None
    complete: bool = False
    searched: SearchedView = Field(default_factory=SearchedView)


class SubmittedView(PartialView):
    """The result for one job of a batch: `job`, or `problem` if it was refused."""

    index: int
    status: int
    job: JobView | None = sometimes(None)
    problem: Problem | None = sometimes(None)


class SubmittedPage(View):
    items: tuple[SubmittedView, ...] = ()
    created: int = 0
    refused: int = 0


class CancelledView(PartialView):
    """The result for one job. `id` is the requested id if it matched no job."""

    job: JobView | None = sometimes(None)
    id: str | None = sometimes(None)
    problem: Problem | None = sometimes(None)


class CancelledPage(View):
    """`jobs` counts the matching jobs; `more`: there are more than these."""

    items: tuple[CancelledView, ...] = ()
    jobs: int = 0
    more: bool = False
    dry_run: bool = False

    @property
    def matching_jobs(self) -> tuple[JobView, ...]:
        return tuple(item.job for item in self.items if item.job is not None)
