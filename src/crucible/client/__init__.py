"""The Python client of a Crucible server. Its names are imported on first use: commands need few of them."""

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
    from crucible.core.compute.offer_filter import OfferFilter

__all__ = [
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobResult",
    "JobStatus",
    "MLPlatform",
    "MetricsTable",
    "OfferFilter",
    "Preferences",
    "Requirements",
    "SyncJob",
    "SyncMLPlatform",
    "verify_webhook",
]

_MODULES = {
    "crucible.client.sdk.blocking": ("SyncJob", "SyncMLPlatform"),
    "crucible.client.sdk.platform": ("Job", "MLPlatform"),
    "crucible.client.request.requirements": ("Preferences", "Requirements"),
    "crucible.client.sdk.results": ("JobCancelled", "JobFailed", "JobResult"),
    "crucible.client.sdk.status": ("JobStatus",),
    "crucible.client.sdk.metrics_table": ("MetricsTable",),
    "crucible.client.sdk.webhooks": ("verify_webhook",),
    "crucible.core.compute.offer_filter": ("OfferFilter",),
}
_FROM = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)
