"""Ready workloads: each a folder of scripts and data with a template.toml that describes it."""

from __future__ import annotations

from crucible.templates.catalog import Preset, Template, copy_to, get, names, templates

__all__ = ["Preset", "Template", "copy_to", "get", "names", "templates"]
