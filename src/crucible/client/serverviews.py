"""The server itself, its models and its upkeep, as it tells of them."""

from crucible.core.views.server import (
    BackupView,
    ConfirmedView,
    ModelPage,
    ModelView,
    PrunedView,
    PruneView,
    ServerView,
    UnprunedView,
)

__all__ = [
    "BackupView",
    "ConfirmedView",
    "ModelPage",
    "ModelView",
    "PruneView",
    "PrunedView",
    "ServerView",
    "UnprunedView",
]
