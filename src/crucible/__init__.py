"""Crucible: one control plane for ML jobs on any compute.

Importing this package costs next to nothing, because a user's script may do it at every start. Inside a job
`crucible.report`, `crucible.checkpoint` and their neighbours load on first use, and so does the client:
`from crucible import MLPlatform, Requirements`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from crucible.client import Job, JobFailed, MLPlatform, Preferences, Requirements, SyncJob, SyncMLPlatform
    from crucible.inside import (
        BaseModel,
        ModelMetadata,
        Option,
        checkpoint,
        registry,
        report,
        result,
        should_checkpoint,
        should_stop,
    )

__version__ = "0.1.0"
__all__ = [
    "BaseModel",
    "Job",
    "JobFailed",
    "MLPlatform",
    "ModelMetadata",
    "Option",
    "Preferences",
    "Requirements",
    "SyncJob",
    "SyncMLPlatform",
    "__version__",
    "checkpoint",
    "registry",
    "report",
    "result",
    "should_checkpoint",
    "should_stop",
]

_CLIENT = ("Job", "JobFailed", "MLPlatform", "Preferences", "Requirements", "SyncJob", "SyncMLPlatform")
_FROM = {name: "crucible.client" if name in _CLIENT else "crucible.inside" for name in __all__ if name != "__version__"}


def __getattr__(name: str) -> object:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_FROM[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_FROM))
