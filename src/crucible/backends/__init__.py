"""Backends, which provide machines: base.py is the contract, registry.py the table of backends."""

from crucible.backends.registry import get_backend, names
from crucible.backends.settings import BackendSettings

__all__ = ["BackendSettings", "get_backend", "names"]
