"""Watch a program's checkpoint folder, verify and upload complete checkpoints, and fetch one to resume from.

listing ──▶ watch ──▶ upload_queue ──▶ snapshot (whole) ──▶ upload ──▶ CHECKPOINT message
"""

from __future__ import annotations

from crucible.agent.checkpoints.fetch import fetch
from crucible.agent.checkpoints.keeper import CheckpointKeeper
from crucible.agent.checkpoints.upload import CheckpointCallbacks

__all__ = ["CheckpointCallbacks", "CheckpointKeeper", "fetch"]
