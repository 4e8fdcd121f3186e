"""Model plugins as a client sees them: asked about in their own Python, never imported here."""

from __future__ import annotations

from crucible.client.model_plugins.configs import read_config, read_inputs
from crucible.client.model_plugins.lookup import discover, find_plugin
from crucible.wire.models.plugins import Fault, Plugin

__all__ = ["Fault", "Plugin", "discover", "find_plugin", "read_config", "read_inputs"]
