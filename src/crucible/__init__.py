"""Crucible: one control plane for ML jobs on any compute.

Importing this package costs next to nothing, because a user's script may do it at every start. Inside a job
`crucible.report`, `crucible.checkpoint` and `crucible.should_stop` load on first use, and so does the client:
`from crucible import MLPlatform, Requirements`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from crucible.client import Job, JobFailed, MLPlatform, Preferences, Requirements, SyncJob, SyncMLPlatform
    from crucible.inside import checkpoint, report, should_checkpoint, should_stop

__version__ = "0.1.0"
__all__ = [
    "Job",
    "JobFailed",
    "MLPlatform",
    "Preferences",
    "Requirements",
    "SyncJob",
    "SyncMLPlatform",
    "__version__",
    "checkpoint",
    "report",
    "should_checkpoint",
    "should_stop",
]

_ROOMS = {
    "crucible.inside": ("checkpoint", "report", "should_checkpoint", "should_stop"),
    "crucible.client": ("Job", "JobFailed", "MLPlatform", "Preferences", "Requirements", "SyncJob", "SyncMLPlatform"),
}
_FROM = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_FROM[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_FROM))
