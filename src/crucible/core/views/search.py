"""Labels, searches and many jobs at once."""

from pydantic import Field

from crucible.core.views.base import PartialView, View, sometimes
from crucible.core.views.jobs import JobView, NoteView
from crucible.core.views.problems import Problem


class TagPage(View):
    items: tuple[str, ...] = ()


class NotePage(View):
    items: tuple[NoteView, ...] = ()


class HitView(View):
    """A line of output that matches: `line` is its number, `offset` the byte where it begins."""

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
    """`next` is the cursor to go on from; `complete`: nothing will follow."""

    items: tuple[HitView, ...] = ()
    next: str | None = None
    complete: bool = False
    searched: SearchedView = Field(default_factory=SearchedView)


class SubmittedView(PartialView):
    """What became of one job of many: `job`, or `problem` where it was refused."""

    index: int
    status: int
    job: JobView | None = sometimes(None)
    problem: Problem | None = sometimes(None)


class SubmittedPage(View):
    items: tuple[SubmittedView, ...] = ()
    created: int = 0
    refused: int = 0


class CancelledView(PartialView):
    """`id` is what was asked for, where that named no job."""

    job: JobView | None = sometimes(None)
    id: str | None = sometimes(None)
    problem: Problem | None = sometimes(None)


class CancelledPage(View):
    """`jobs` counts those that are meant; `more`: there are others beyond them."""

    items: tuple[CancelledView, ...] = ()
    jobs: int = 0
    more: bool = False
    dry_run: bool = False

    @property
    def matching_jobs(self) -> tuple[JobView, ...]:
        return tuple(item.job for item in self.items if item.job is not None)
