"""This computer as a backend: one host that stays up, found again by lock, pid and start time."""

from crucible.backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
