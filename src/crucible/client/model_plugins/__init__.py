"""Model plugins of a Python environment, described by a subprocess in it and never imported here."""

from __future__ import annotations

from crucible.client.model_plugins.configs import read_config, read_inputs
from crucible.client.model_plugins.lookup import find_plugin, list_plugins
from crucible.wire.models.plugins import Plugin, PluginProblem

__all__ = ["Plugin", "PluginProblem", "find_plugin", "list_plugins", "read_config", "read_inputs"]
