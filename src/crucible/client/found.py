"""What the server answers about labels, searches and many jobs at once."""

from crucible.core.views.found import (
    CancelledPage,
    CancelledView,
    HitPage,
    HitView,
    NotePage,
    NoteView,
    ProblemView,
    SubmittedPage,
    SubmittedView,
    TagPage,
)

__all__ = [
    "CancelledPage",
    "CancelledView",
    "HitPage",
    "HitView",
    "NotePage",
    "NoteView",
    "ProblemView",
    "SubmittedPage",
    "SubmittedView",
    "TagPage",
]
