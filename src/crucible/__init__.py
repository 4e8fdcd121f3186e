"""Crucible: one control plane for ML jobs on any compute.

Importing this package costs next to nothing, because a user's script may do it at every start. Inside a job
`crucible.report`, `crucible.checkpoint` and their neighbours load on first use.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
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
    "ModelMetadata",
    "Option",
    "__version__",
    "checkpoint",
    "registry",
    "report",
    "result",
    "should_checkpoint",
    "should_stop",
]

_INSIDE = frozenset(__all__) - {"__version__"}


def __getattr__(name: str) -> object:
    if name not in _INSIDE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module("crucible.inside"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | _INSIDE)
