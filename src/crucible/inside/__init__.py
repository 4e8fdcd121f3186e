"""The API for user code in a job. Python 3.9, standard library only.

The same calls work outside a job: `report` prints, checkpoints go to ./checkpoints. The parts for model plugins are
loaded on first use.
"""

from __future__ import annotations

from crucible.inside import checkpoint
from crucible.inside.paths import data_dir, output_dir, resume_from
from crucible.inside.reporting import report
from crucible.inside.stopping import on_stop, should_checkpoint, should_stop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from crucible.inside import registry
    from crucible.inside.model import BaseModel, ModelMetadata
    from crucible.inside.results import result
    from crucible.wire.models.options import Option

__all__ = [
    "BaseModel",
    "ModelMetadata",
    "Option",
    "checkpoint",
    "data_dir",
    "on_stop",
    "output_dir",
    "registry",
    "report",
    "result",
    "resume_from",
    "should_checkpoint",
    "should_stop",
]

_LAZY = {
    "BaseModel": "crucible.inside.model:BaseModel",
    "ModelMetadata": "crucible.inside.model:ModelMetadata",
    "Option": "crucible.wire.models.options:Option",
    "registry": "crucible.inside.registry",
    "result": "crucible.inside.results:result",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _LAZY[name].partition(":")
    imported: object = import_module(module)
    value: object = getattr(imported, attribute) if attribute else imported
    globals()[name] = value
    return value
