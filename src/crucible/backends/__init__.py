"""Ways to get machines: base.py is the contract, registry.py the table of backends, each loaded when used."""

from crucible.backends.registry import get_backend, names
from crucible.backends.settings import BackendSettings

__all__ = ["BackendSettings", "get_backend", "names"]
