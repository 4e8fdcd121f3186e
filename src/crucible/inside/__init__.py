"""What user code may import in a job. Python 3.9, standard library only.

The same calls work off the platform: `report` prints, checkpoints go to ./checkpoints.
"""

from __future__ import annotations

from crucible.inside import checkpoint
from crucible.inside.places import data_dir, output_dir, resume_from
from crucible.inside.reporting import report
from crucible.inside.stopping import on_stop, should_checkpoint, should_stop

__all__ = [
    "checkpoint",
    "data_dir",
    "on_stop",
    "output_dir",
    "report",
    "resume_from",
    "should_checkpoint",
    "should_stop",
]
