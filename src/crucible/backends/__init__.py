"""Places where jobs run: one module per place, base.py the contract, registry.py the lazy table."""

from crucible.backends.registry import get_backend, names
from crucible.backends.settings import BackendSettings

__all__ = ["BackendSettings", "get_backend", "names"]
