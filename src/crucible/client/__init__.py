"""Talking to a Crucible server from Python. Its names load on first use: commands need few of them."""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from crucible.client.request.requirements import Preferences, Requirements
    from crucible.client.sdk.blocking import SyncJob, SyncMLPlatform
    from crucible.client.sdk.metrics_table import MetricsTable
    from crucible.client.sdk.platform import Job, MLPlatform
    from crucible.client.sdk.results import JobCancelled, JobFailed, JobResult
    from crucible.client.sdk.status import JobStatus
    from crucible.client.sdk.webhooks import verify_webhook

__all__ = [
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobResult",
    "JobStatus",
    "MLPlatform",
    "MetricsTable",
    "Preferences",
    "Requirements",
    "SyncJob",
    "SyncMLPlatform",
    "verify_webhook",
]

_MODULES = {
    "sdk.blocking": ("SyncJob", "SyncMLPlatform"),
    "sdk.platform": ("Job", "MLPlatform"),
    "request.requirements": ("Preferences", "Requirements"),
    "sdk.results": ("JobCancelled", "JobFailed", "JobResult"),
    "sdk.status": ("JobStatus",),
    "sdk.metrics_table": ("MetricsTable",),
    "sdk.webhooks": ("verify_webhook",),
}
_FROM = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FROM[name]}"), name)
