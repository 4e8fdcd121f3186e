"""Checkpoints: what a program leaves in its checkpoint folder, watched, verified and stored; and fetched again.

listing ──▶ watch ──▶ waiting ──▶ snapshot (whole) ──▶ upload ──▶ CHECKPOINT
"""

from __future__ import annotations

from crucible.agent.checkpoints.fetch import fetch
from crucible.agent.checkpoints.keeper import CheckpointKeeper
from crucible.agent.checkpoints.upload import CheckpointCallbacks

__all__ = ["CheckpointCallbacks", "CheckpointKeeper", "fetch"]
