"""The backend `local`: this computer, on which one agent host is shared by all attempts."""

from crucible.backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
