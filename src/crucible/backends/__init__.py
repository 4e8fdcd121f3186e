"""Backends, which provide machines: base.py is the contract, registry.py the table of backends."""

from crucible.backends.context import BackendContext
from crucible.backends.registry import get_backend, names
from crucible.backends.settings import BackendSettings, setting

__all__ = ["BackendContext", "BackendSettings", "get_backend", "names", "setting"]
